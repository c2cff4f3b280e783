"""Requests and responses: JSON of Kafka Connect's REST API.

Here: bodies, and mapping exceptions to `{"error_code": …, "message": …}`.
Not here: resources (`resources`).

Unlike in Kafka Connect, an unreadable body is a client error, 400 instead of 500.
"""

import asyncio
import json
import logging
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from busway import BuswayError, MessageTooLarge
from busway_connect.runtime.bounds import SETTINGS_MAX
from busway_connect.runtime.leader import TurnOver
from busway_connect.runtime.refusals import Refused

logger = logging.getLogger("busway.connect")
BODY_BYTES_MAX: Final = 1024 * 1024
"""A connector's settings are a few kilobytes."""
_EMPTY: Final = {"Content-Length": "0"}


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(errors="replace"), status, headers, "application/json")


def empty(status: int) -> Response:
    return Response(b"", status, None if status == 204 else _EMPTY)


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body.

    Raises:
        Refused: 400 not an object; 413 too large; 415 another media type.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "HTTP 415 Unsupported Media Type")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            raise Refused(413, f"The body is larger than {BODY_BYTES_MAX} bytes")
    try:
        value = await asyncio.to_thread(json.loads, bytes(data))  # a megabyte takes tens of milliseconds
    except (ValueError, RecursionError) as problem:
        raise Refused(400, f"The body is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise Refused(400, f"The body is a JSON {type(value).__name__}, an object is expected")
    return value


def texts(given: Any, what: str) -> dict[str, str | None]:
    """Return settings as text by name; numbers and booleans become text, like in Kafka Connect.

    Raises:
        Refused: as `text`.
    """
    if not isinstance(given, dict):
        raise Refused(400, f"{what} is an object of names and texts")
    if len(given) > SETTINGS_MAX:
        raise Refused(413, f"{what} has {len(given)} settings, {SETTINGS_MAX} are the most")
    return {text(name, f"a name in {what}"): text(value, f"{what}: {name}") for name, value in given.items()}


def text(value: Any, what: str) -> Any:
    """Return a string, number or boolean as text; None stays None.

    Raises:
        Refused: 400 an object, a list, or a lone surrogate, which no topic can store.
    """
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise Refused(400, f"{what} is a text, not {json.dumps(value)[:80]}")
    made = value if isinstance(value, str) else json.dumps(value)
    try:
        made.encode()
    except UnicodeEncodeError:
        raise Refused(400, f"{what} holds half a character: {json.dumps(made)[:80]}") from None
    return made


async def refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Refused)
    return answer({"error_code": problem.status, "message": str(problem)}, problem.status)


async def no_route(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    said = {404: "HTTP 404 Not Found", 405: "HTTP 405 Method Not Allowed"}
    message = said.get(problem.status_code, f"HTTP {problem.status_code} {problem.detail}")
    return answer({"error_code": problem.status_code, "message": message}, problem.status_code)


async def bus_failed(request: Request, problem: Exception) -> Response:
    logger.error("%s %s: %s", request.method, request.url.path, problem)
    return answer({"error_code": 500, "message": f"The bus does not answer: {problem}"}, 500)


async def not_now(request: Request, problem: Exception) -> Response:
    """Handle the takeover by another worker."""
    return answer({"error_code": 409, "message": str(problem)}, 409)


async def too_large(request: Request, problem: Exception) -> Response:
    return answer({"error_code": 413, "message": f"The settings are too large to be kept: {problem}"}, 413)


async def gone(request: Request, problem: Exception) -> Response:
    """Log a client that disconnected during its request."""
    return answer({"error_code": 400, "message": "the client hung up"}, 400)


async def broken(request: Request, problem: Exception) -> Response:
    """Handle a defect; only the log has the details."""
    logger.error("defect on %s %s", request.method, request.url.path, exc_info=problem)
    return answer({"error_code": 500, "message": "Internal Server Error; see the worker's log"}, 500)


# Coroutines: Starlette runs plain functions in a thread.
HANDLERS: Final[dict[Any, Any]] = {
    ClientDisconnect: gone,
    Refused: refused,
    HTTPException: no_route,
    MessageTooLarge: too_large,
    TurnOver: not_now,
    BuswayError: bus_failed,
    Exception: broken,
}
