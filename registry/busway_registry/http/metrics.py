"""`/metrics`: the registry's figures for Prometheus.

Here: counting requests, and the page. Names with `kafka_schema_registry_` are those that Confluent's rules for the JMX
exporter give the same figures (jmx-monitoring-stacks, `confluent_schemaregistry.yml`), endpoints have the names of
Confluent's jersey-metrics.
Not here: health (`health`), the names of endpoints (each at its route).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from busway.net.machine import OS
from busway_registry.service import Registry
from busway_registry.store.interface import StoreFailed

logger = logging.getLogger("busway.registry")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "kafka_schema_registry_"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UNROUTED: Final = "none"
"""Endpoint of requests to paths that do not exist."""
_UNTYPED: Final = "unknown"
"""Type of figures that Confluent's rules export without one."""
_FAILED: Final = 400
_Key = tuple[Callable[..., Any], frozenset[str]]


class RegistryMetrics:
    """Counters of one registry."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._endpoints: Mapping[_Key, str] = {
            (route.endpoint, frozenset(route.param_convertors)): route.name for route in routes
        }
        self.connections: Callable[[], int] = lambda: 0
        """Number of open connections; set by the server."""
        self.succeeded = self.failed = 0
        self.collectors = collectors = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "busway_registry_requests", "Requests by class of status.", ("endpoint", "status"), registry=collectors
        )
        self._seconds = Histogram(
            "busway_registry_request_duration_seconds",
            "From a request to its whole response.",
            ("endpoint",),
            registry=collectors,
            buckets=BUCKETS_S,
        )
        Gauge("busway_build_info", "1.", ("version",), registry=collectors).labels(version("busway")).set(1)
        ProcessCollector(registry=collectors)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answered request by its route; requests for health and metrics are left out."""
        endpoint = scope.get("endpoint")
        name = self._endpoints.get((endpoint, frozenset(scope.get("path_params", ()))), "") if endpoint else _UNROUTED
        if not name:
            return
        self._requests.labels(name, f"{status // 100}xx").inc()
        self._seconds.labels(name).observe(seconds)
        if status < _FAILED:
            self.succeeded += 1
        else:
            self.failed += 1

    def page(self, versions: Mapping[tuple[str, bool], int] | None) -> bytes:
        """Return the page.

        Args:
            versions: numbers by schema type and whether soft-deleted; None if the database cannot be read.
        """
        figures = CollectorRegistry(auto_describe=False)
        figures.register(_Figures(self, versions))
        return generate_latest(figures) + generate_latest(self.collectors)


class _Figures(Collector):
    def __init__(self, metrics: RegistryMetrics, versions: Mapping[tuple[str, bool], int] | None) -> None:
        self._metrics = metrics
        self._versions = versions

    def collect(self) -> Iterable[Metric]:
        metrics = self._metrics
        yield _family("api_success_count", "Requests with a status below 400.", [({}, metrics.succeeded)])
        yield _family("api_failure_count", "Requests with a status of 400 or more.", [({}, metrics.failed)])
        yield _family("jetty_metrics_connections_active", "Open connections.", [({}, metrics.connections())])
        if self._versions is None:
            return
        created: dict[str, int] = {}
        deleted: dict[str, int] = {}
        for (kind, is_deleted), count in self._versions.items():
            label = kind.lower()
            created[label] = created.get(label, 0) + count
            deleted[label] = deleted.get(label, 0) + is_deleted * count
        yield _family("registered_count", "Versions in the database.", [({}, sum(created.values()))])
        for name, text, counts in (
            ("schemas_created", "Versions in the database by type.", created),
            ("schemas_deleted", "Soft-deleted versions by type.", deleted),
        ):
            yield _family(name, text, [({"schema_type": kind}, count) for kind, count in counts.items()])


def _family(name: str, text: str, samples: Iterable[tuple[dict[str, str], int]]) -> Metric:
    family = Metric(PREFIX + name, text, _UNTYPED)
    for labels, value in samples:
        family.add_sample(PREFIX + name, labels, value)
    return family


class Counting:
    """Counts an application's requests, around its router."""

    def __init__(self, app: ASGIApp, metrics: RegistryMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        begun_s = OS.monotonic_s()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:  # the router has put the endpoint into the scope
            self._metrics.count(scope, status, OS.monotonic_s() - begun_s)


async def metrics(request: Request) -> Response:
    """Return the page; figures of the database are left out while it cannot be read."""
    state = request.app.state
    try:
        versions = await cast("Registry", state.registry).version_counts()
    except StoreFailed as problem:
        logger.warning("metrics without those of the database, which cannot be read: %s", problem)
        versions = None
    return Response(cast("RegistryMetrics", state.metrics).page(versions), 200, None, CONTENT_TYPE)


ROUTES = [Route("/metrics", metrics, name="")]
