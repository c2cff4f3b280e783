"""`/metrics`: counts of the worker's connectors for Prometheus.

Here: names, read at the scrape.
Not here: counting (`runtime.task_context`).

| metric | labels | meaning |
|---|---|---|
| `busway_connect_worker_active` | | 1 while this worker works |
| `busway_connect_connector_running` | connector, type | 1 while its task runs |
| `busway_connect_connector_failed` | connector, type | 1 after its task failed for good |
| `busway_connect_records_polled_total` | connector, type | read from the source or the sink's topics |
| `busway_connect_records_written_total` | connector, type | acknowledged by the bus, or written by the sink |
| `busway_connect_records_already_written_total` | connector, type | found in the topics after a restart |
| `busway_connect_records_tolerated_total` | connector, type | bad records skipped |
| `busway_connect_dead_letters_total` | connector, type | of these, in the dead-letter topic |
| `busway_connect_offset_commits_total` | connector, type | offset commits |
| `busway_connect_task_restarts_total` | connector, type | automatic restarts of the task |
| `busway_connect_seconds_since_progress` | connector, type | since it last handled records |
| `busway_connect_source_progress` | connector, type, name | the connector's own figures |
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from busway_connect.plugins import kind_of
from busway_connect.runtime.runner import Runner
from busway_connect.runtime.worker import Worker

_PREFIX: Final = "busway_connect_"
_LABELS: Final = ["connector", "type"]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class WorkerMetrics(Collector):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        active = self._worker.active.is_set()
        yield GaugeMetricFamily(f"{_PREFIX}worker_active", "1 while it is this worker's turn", value=float(active))
        table = [(runner, self._labels(runner)) for runner in self._worker.runners.values()]
        for name, doc in (("connector_running", "RUNNING"), ("connector_failed", "FAILED")):
            gauge = GaugeMetricFamily(f"{_PREFIX}{name}", f"1 while its task is {doc}", labels=_LABELS)
            for runner, labels in table:
                state = runner.task or runner.state
                gauge.add_metric(labels, float(state.name == doc))
            yield gauge
        for name, doc, read in _COUNTERS:
            counter = CounterMetricFamily(f"{_PREFIX}{name}", doc, labels=_LABELS)
            for runner, labels in table:
                counter.add_metric(labels, read(runner))
            yield counter
        since = GaugeMetricFamily(f"{_PREFIX}seconds_since_progress", "since it last handled records", labels=_LABELS)
        progress = GaugeMetricFamily(f"{_PREFIX}source_progress", "what the connector tells", labels=[*_LABELS, "name"])
        for runner, labels in table:
            since.add_metric(labels, time.monotonic() - runner.counts.progress_at)
            notes = runner.connector.progress.notes if runner.connector is not None else {}
            for name, value in notes.items():
                if isinstance(value, int | float):
                    progress.add_metric([*labels, name], float(value))
        yield since
        yield progress

    def _labels(self, runner: Runner) -> list[str]:
        kind = self._worker.kind(runner)
        return [runner.name, "unknown" if kind is None else kind_of(kind)]


_COUNTERS: Final[tuple[tuple[str, str, Callable[[Runner], float]], ...]] = (
    ("records_polled", "records handed over", lambda runner: runner.counts.polled),
    ("records_written", "records acknowledged or written", lambda runner: runner.counts.written_records),
    (
        "records_already_written",
        "records found in the topics after a restart",
        lambda runner: runner.counts.written.dropped if runner.counts.written is not None else 0,
    ),
    (
        "records_tolerated",
        "bad records passed over",
        lambda runner: runner.counts.failures.tolerated if runner.counts.failures is not None else 0,
    ),
    (
        "dead_letters",
        "records in the dead-letter topic",
        lambda runner: runner.counts.failures.dead_lettered if runner.counts.failures is not None else 0,
    ),
    ("offset_commits", "how often offsets were stored", lambda runner: runner.counts.offset_commits),
    ("task_restarts", "how often the task started again by itself", lambda runner: runner.counts.restarts),
)


async def metrics(request: Request) -> Response:
    registry: CollectorRegistry = request.app.state.metrics
    return Response(generate_latest(registry), 200, None, CONTENT_TYPE)
