"""JSON bodies of requests and responses.

Here: responses, refusals, and decoding bodies to types. Every refusal is `{"error": text}`.
Not here: event streams (`events`), the server (`server`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from busway.errors import BuswayError

T = TypeVar("T")
MAX_BODY_BYTES: Final = 1024 * 1024
"""Default limit of a body; also that of a record's size."""
_JSON: Final = "application/json"


class Refused(HTTPException):
    """A refused request.

    Args:
        status: 400 to 599.
        text: reason and remedy.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)


def json_response(value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Encode by msgspec: dataclasses, structs, datetimes, enums, plain values.

    Raises:
        TypeError: msgspec cannot encode it.
    """
    return Response(msgspec.json.encode(value), status, headers=headers, media_type=_JSON)


def refusal(status: int, text: str) -> Response:
    """Return `{"error": text}`."""
    return json_response({"error": text}, status)


async def read_json(request: Request, kind: type[T], *, max_bytes: int = MAX_BODY_BYTES) -> T:
    """Decode the body to a type of msgspec.

    Raises:
        Refused: 413 for a body above `max_bytes`, 400 for invalid JSON, 422 for a value that does not fit; names the
            field.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise Refused(413, f"the body is larger than {max_bytes} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        raise Refused(422, _field_first(str(problem))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Refused(400, f"the body is no JSON: {problem}") from None


def _field_first(text: str) -> str:
    """Put the field first; msgspec puts it last: ``Expected `int`, got `str` - at `$.stops[0].at` ``."""
    what, has_path, where = text.partition(" - at `$")
    return f"{where.rstrip('`').lstrip('.') if has_path else 'the body'}: {what}"


def application(
    routes: Sequence[BaseRoute], *, handlers: Mapping[Any, Callable[[Request, Any], Awaitable[Response]]] | None = None
) -> Starlette:
    """Make a Starlette application with errors as `{"error": text}`.

    `Refused` and Starlette's own errors keep their status; a `BuswayError`, such as an unreachable bus, is 503.

    Args:
        handlers: for further exceptions, as in Starlette.
    """
    return Starlette(
        routes=list(routes), exception_handlers={HTTPException: _refused, BuswayError: _bus, **(handlers or {})}
    )


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    answer = refusal(problem.status_code, problem.detail)
    answer.headers.update(problem.headers or {})
    return answer


async def _bus(request: Request, problem: Exception) -> Response:
    return refusal(503, str(problem))
