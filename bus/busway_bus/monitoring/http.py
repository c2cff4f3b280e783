"""The metrics listener: metrics and health over HTTP.

Here: paths, one scrape at a time, limits for clients.
Not here: the HTTP server (`busway.net.http_server`), text (`page`), reasons (`health`). It imports starlette and
uvicorn, of the metrics extra.

| path | response |
|---|---|
| `GET /metrics` | Prometheus' text format 0.0.4; simultaneous scrapes share one |
| `GET /health/live` | 200 while the event loop runs |
| `GET /health/ready` | 200, or 503 with `reasons` |
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from busway.net.http_connections import Patience
from busway.net.http_server import serving
from busway.net.listening import bind
from busway_bus.handlers.common.context import NodeServices
from busway_bus.kernel.limits import METRICS_CONNECTIONS_MAX
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.monitoring import health
from busway_bus.monitoring.figures import collect
from busway_bus.monitoring.page import CONTENT_TYPE, render
from busway_bus.scheduling.off_loop import off_loop

PATIENCE: Final = Patience(connections=METRICS_CONNECTIONS_MAX)


class Monitoring:
    """The application.

    Args:
        state: its `BrokerState`.
        connections: numbers of open connections by listener.
    """

    def __init__(
        self, node: NodeServices, state: Callable[[], int], connections: Callable[[], Mapping[str, int]]
    ) -> None:
        self._node = node
        self._state = state
        self._connections = connections
        self._scrape: asyncio.Task[bytes] | None = None
        routes = {"/metrics": self._metrics, "/health/live": self._live, "/health/ready": self._ready}
        self.app = Starlette(routes=[Route(path, endpoint) for path, endpoint in routes.items()])

    async def _live(self, _: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, _: Request) -> Response:
        reasons = health.problems(self._node)
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _metrics(self, _: Request) -> Response:
        if self._scrape is None:
            self._scrape = asyncio.ensure_future(self._page())
        page = await asyncio.shield(self._scrape)
        return Response(page, 200, None, CONTENT_TYPE)

    async def _page(self) -> bytes:
        try:
            figures = await collect(self._node, self._state(), self._connections())
            return await off_loop(partial(render, figures))
        finally:
            self._scrape = None


@contextlib.asynccontextmanager
async def serve(monitoring: Monitoring, endpoint: Endpoint) -> AsyncIterator[str]:
    """Serve within the block. Yields the address.

    Raises:
        CannotListen: of `busway.net`; the address is taken or not this machine's.
    """
    bound = await bind(endpoint.host, endpoint.port, subject=endpoint.name)
    async with serving(monitoring.app, bound, patience=PATIENCE):
        yield f"http://{Endpoint(name='', host=endpoint.host, port=bound.getsockname()[1]).address}"
