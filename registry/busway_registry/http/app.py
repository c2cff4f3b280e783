"""The routes as one application.

Here: resource of each path; paths stay encoded, so that a subject may contain a slash.
"""

from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from busway_registry.http import compatibility, config, health, metrics, mode, schemas, subjects
from busway_registry.http.bodies import answer
from busway_registry.http.errors import HANDLERS
from busway_registry.http.metrics import Counting, RegistryMetrics
from busway_registry.http.reading import Holding
from busway_registry.service import Registry


async def root(request: Request) -> Response:
    """Return an empty object; tools use it as a liveness probe."""
    return answer(request, {})


async def contexts(request: Request) -> Response:
    return answer(request, ["."])


async def associations(request: Request) -> Response:
    """Return no associations of topics; clients then use `{topic}-value`."""
    return answer(request, [])


async def server_version(request: Request) -> Response:
    return answer(request, {"version": version("busway"), "commitId": "busway"})


async def cluster_id(request: Request) -> Response:
    """Return the scope that tools display; a registry has no clusters."""
    clusters = {"kafka-cluster": "", "schema-registry-cluster": "busway"}
    return answer(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})


def create_app(registry: Registry) -> tuple[ASGIApp, RegistryMetrics]:
    """Return the application and its counters. Names of routes are those of Confluent's jersey-metrics."""
    handlers: dict[Any, Any] = dict(HANDLERS)
    routes = [
        Route("/", root, methods=["GET", "POST"], name="root"),
        Route("/contexts", contexts, name="contexts.list"),
        Route("/associations/resources/{namespace}/{name}", associations, name="associations.by-resource-name"),
        Route("/associations/subjects/{subject}", associations, name="associations.by-subject"),
        Route("/v1/metadata/id", cluster_id, name="metadata.id"),
        Route("/v1/metadata/version", server_version, name="metadata.version"),
        *health.ROUTES,
        *metrics.ROUTES,
        *subjects.ROUTES,
        *schemas.ROUTES,
        *compatibility.ROUTES,
        *config.ROUTES,
        *mode.ROUTES,
    ]
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.registry = registry
    app.state.metrics = counters = RegistryMetrics(routes)
    return Holding(_Encoded(Counting(app, counters))), counters


class _Encoded:
    """Routes by the raw path: `%2F` in a subject is no separator. Resources decode their part."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            scope = {**scope, "path": path.rstrip("/") or "/"}
        try:
            await self._app(scope, receive, send)
        except Exception:  # noqa: BLE001 - the top of the stack: starlette raises again what `errors.broken` has answered and logged
            return
