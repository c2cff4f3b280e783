"""`Web`: an app's HTTP side as an extension.

Here: the paths, and start and stop.
Not here: the server (`server`), readiness (`busway.app.monitoring.health`).

| path | what |
|---|---|
| `GET /health/live` | 200: the event loop answers |
| `GET /health/ready` | 200 when work gets done, else 503 with the reasons, each naming its partition |
| `GET /metrics` | figures in Prometheus's text format; see `busway.app.monitoring.metrics` |
| all else | the service's own application |
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from busway.app.extending.extension import Call, Extension, Handling
from busway.app.monitoring.metrics import CONTENT_TYPE, Metrics
from busway.types import TopicPartition
from busway.web.bodies import application, json_response, refusal
from busway.web.server import parse_address, serving

if TYPE_CHECKING:
    from busway.app.model.topic import Route
    from busway.app.service import RunningService

ADDRESS_VARIABLE: Final = "BUSWAY_HTTP_PORT"
"""Environment variable with `[HOST:]PORT`; used when the service sets no port."""
WORKER_VARIABLE: Final = "BUSWAY_WORKER"
"""Environment variable with the worker's number in `busway run --workers`, from 0."""


class Web(Extension):
    """Serves an ASGI application with health and metrics while the app runs.

    Prints `NAME http://…` on standard output once it serves, for the process that started the service.

    Args:
        asgi: the service's application; None serves health and metrics alone.
        host: beyond this machine only with `insecure`.
        port: 0 takes a free one; None takes BUSWAY_HTTP_PORT of the environment, without which nothing is served.
            Worker i of `busway run --workers` serves this port + i: each has other partitions and so other figures, and
            Prometheus scrapes all.
        insecure: the network is trusted.
        metrics: also the source of readiness; a service may register its own in `metrics.registry`.
    """

    def __init__(
        self,
        asgi: ASGIApp | None = None,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        insecure: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.insecure = insecure
        self.metrics: Metrics = metrics or Metrics()
        self.url: str | None = None
        """Address while serving, else None."""
        self._asgi = asgi or application([])
        self._stack = AsyncExitStack()

    # Paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = {"/health/live": self._live, "/health/ready": self._ready, "/metrics": self._metrics}
        answer = own.get(scope.get("path", "")) if scope["type"] == "http" else None
        if answer is None:
            await self._asgi(scope, receive, send)
        elif scope["method"] in {"GET", "HEAD"}:
            await (await answer(Request(scope, receive)))(scope, receive, send)
        else:
            await refusal(405, f"{scope['path']} is read with GET")(scope, receive, send)

    async def _live(self, request: Request) -> Response:
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        readiness = await self.metrics.ready()
        return json_response({"ready": readiness.ready, "reasons": readiness.reasons}, 200 if readiness.ready else 503)

    async def _metrics(self, request: Request) -> Response:
        return Response(await self.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    # Calls by the app

    async def starting(self, app: "RunningService") -> None:
        await self.metrics.starting(app)
        host, port = self.host, self.port
        if port is None and (given := os.environ.get(ADDRESS_VARIABLE)):
            wanted, port = parse_address(given)
            host = wanted or host
        if port is None:
            return
        if port:
            port += int(os.environ.get(WORKER_VARIABLE, "0"))
        self.url = await self._stack.enter_async_context(serving(self, host=host, port=port, insecure=self.insecure))
        sys.stdout.write(f"{app.name} {self.url}\n")
        sys.stdout.flush()

    async def stopped(self, app: "RunningService") -> None:
        self.url = None
        try:
            await self._stack.aclose()
        finally:
            await self.metrics.stopped(app)

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self.metrics.assigned(partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self.metrics.revoked(partitions)

    def around(self, route: "Route", call: Call) -> Call:
        return self.metrics.around(route, call)

    def finished(self, handling: Handling) -> None:
        self.metrics.finished(handling)

    async def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self.metrics.committed(offsets)
