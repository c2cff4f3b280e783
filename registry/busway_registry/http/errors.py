"""Exceptions → `{"error_code": …, "message": …}`.

Here: a handler for each kind, coroutines, as starlette runs plain functions in a thread.
Not here: refusals (`domain.errors`).
"""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from busway_registry.domain.errors import RegistryError
from busway_registry.http.bodies import answer
from busway_registry.store.interface import StoreFailed

logger = logging.getLogger("busway.registry")
_WORTH_A_LINE = frozenset({400, 413, 415, 422, 503, 50002})
"""Codes that are logged: broken clients, and overload."""


async def refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RegistryError)
    level = logging.WARNING if problem.code in _WORTH_A_LINE else logging.DEBUG
    logger.log(
        level, "%s %s refused: %s %s", request.method, request.url.path, problem.code, _one_line(problem.message)
    )
    return answer(request, {"error_code": problem.code, "message": problem.message}, problem.status)


async def no_route(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    said = {404: f"HTTP 404 Not Found: no resource at {request.url.path}", 405: "HTTP 405 Method Not Allowed"}
    message = said.get(problem.status_code, f"HTTP {problem.status_code} {problem.detail}")
    return answer(request, {"error_code": problem.status_code, "message": message}, problem.status_code)


async def store_failed(request: Request, problem: Exception) -> Response:
    """Handle a failure of the database: 50001."""
    logger.error("the store failed on %s %s: %s", request.method, request.url.path, _one_line(str(problem)))
    return answer(
        request, {"error_code": 50001, "message": "Error in the backend datastore; see the registry's log"}, 500
    )


async def gone(request: Request, problem: Exception) -> Response:
    """Log a client that disconnected during its request."""
    logger.info("%s %s: the client hung up", request.method, request.url.path)
    return answer(request, {"error_code": 400, "message": "the client hung up"}, 400)


async def broken(request: Request, problem: Exception) -> Response:
    """Handle a defect; only the log has the details."""
    logger.error("defect on %s %s", request.method, request.url.path, exc_info=problem)
    return answer(request, {"error_code": 500, "message": "Internal Server Error; see the registry's log"}, 500)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


HANDLERS = {
    ClientDisconnect: gone,
    RegistryError: refused,
    HTTPException: no_route,
    StoreFailed: store_failed,
    Exception: broken,
}
