"""`/health`: whether the registry runs, and whether it can use its database.

Here: for orchestrators; Confluent's registry has no such resources.
Not here: metrics (`metrics`).

| path | response |
|---|---|
| `GET /health/live` | 200 while the event loop runs |
| `GET /health/ready` | 200, or 503 with `reasons` if the database cannot be read |
"""

import logging
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busway_registry.http.bodies import answer
from busway_registry.service import Registry
from busway_registry.store.interface import StoreFailed

logger = logging.getLogger("busway.registry")


async def live(request: Request) -> Response:
    """Return 200."""
    return answer(request, {"live": True})


async def ready(request: Request) -> Response:
    """Read the database. The reason for a failure is logged, as it may name hosts."""
    try:
        await cast("Registry", request.app.state.registry).check_store()
    except StoreFailed as problem:
        logger.warning("not ready: the database cannot be read: %s", problem)
        reason = "the database cannot be read; see the registry's log"
        return answer(request, {"ready": False, "reasons": [reason]}, 503)
    return answer(request, {"ready": True, "reasons": []})


ROUTES = [Route("/health/live", live, name=""), Route("/health/ready", ready, name="")]
