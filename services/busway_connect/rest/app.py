"""Routes of the REST API."""

from typing import Any, Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from busway_connect.rest.bodies import HANDLERS
from busway_connect.rest.metrics import WorkerMetrics, metrics
from busway_connect.rest.resources import ROUTES
from busway_connect.runtime.worker import Worker

_METRICS: Final = Route("/metrics", metrics, methods=["GET"])


def create_app(worker: Worker) -> ASGIApp:
    app = Starlette(routes=[*ROUTES, _METRICS], exception_handlers=dict[Any, Any](HANDLERS))
    app.state.worker = worker
    app.state.metrics = CollectorRegistry()
    app.state.metrics.register(WorkerMetrics(worker))
    return _Encoded(app)


class _Encoded:
    """Routes by the raw path: `%2F` in a connector's name is no separator; resources decode."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            scope = {**scope, "path": path.rstrip("/") or "/"}
        try:
            await self._app(scope, receive, send)
        except Exception:  # noqa: BLE001 - the top of the stack: starlette re-raises after `bodies.broken` has responded and logged
            return
