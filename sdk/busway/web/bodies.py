"""JSON in and out.

What lives here: answers, refusals, and bodies read into types. What does not: event streams (`events`), the server (`server`).
Every refusal is `{"error": text}`.
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
"""As large as a record may be by default."""
_JSON: Final = "application/json"


class Refused(HTTPException):
    """A request that is not served.

    Args:
        status: 400 to 599.
        text: what is wrong and what would be right.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)


def json_response(found: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Anything that msgspec encodes: dataclasses, structs, datetimes, enums, plain values.

    Raises:
        TypeError: it does not.
    """
    return Response(msgspec.json.encode(found), status, headers=headers, media_type=_JSON)


def refusal(status: int, text: str) -> Response:
    """`{"error": text}`."""
    return json_response({"error": text}, status)


async def read_json(request: Request, kind: type[T], *, max_bytes: int = MAX_BODY_BYTES) -> T:
    """The body as a dataclass, a struct, or whatever else msgspec decodes.

    Raises:
        Refused: 413 for a body above `max_bytes`, 400 for one that is no JSON, 422 for a value that does not fit; names the field.
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
    """msgspec says what is wrong and then where: ``Expected `int`, got `str` - at `$.stops[0].at` ``."""
    what, found, where = text.partition(" - at `$")
    return f"{where.rstrip('`').lstrip('.') if found else 'the body'}: {what}"


def application(
    routes: Sequence[BaseRoute], *, handlers: Mapping[Any, Callable[[Request, Any], Awaitable[Response]]] | None = None
) -> Starlette:
    """A Starlette application whose errors are `{"error": text}`: `Refused` and what Starlette refuses with their status, a bus that
    cannot be reached with 503.

    Args:
        routes: of the service.
        handlers: answers to further exceptions, as Starlette takes them.
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
