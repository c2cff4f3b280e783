"""Metrics of an app for Prometheus.

Here: `Metrics`, with its own registry, so that two apps of one process, or two tests, do not collide.
Not here: serving them (`busway.web`). An app without it counts nothing.

| name | labels | what |
|---|---|---|
| `busway_handler_records_total` | topic, handler, outcome | records given to handlers; outcome handled, filtered,
retried, dead_lettered |
| `busway_handler_duration_seconds` | topic, handler | histogram of calls, with any outcome |
| `busway_handler_retries_total` | topic, handler | failed calls that are retried |
| `busway_dead_letters_total` | topic, handler | dead-lettered records |
| `busway_handler_in_flight` | handler | calls in progress |
| `busway_assigned_partitions` | | partitions of this process |
| `busway_rebalances_total` | | assignments and revocations |
| `busway_committed_offset` | topic, partition | the group's |
| `busway_lag_records` | topic, partition | records behind it |
| `busway_seconds_since_progress` | topic, partition | since a record was finished, or the partition was assigned |
| `busway_parked_records` | topic, partition | records that wait for their next attempt |
| `busway_transactions_total` | outcome | of exactly_once handlers: committed, aborted (and repeated) |
| `busway_transaction_renewals_total` | | restarts of all partitions because their producer was fenced or failed for
good |
| `busway_brokers_reachable` | | 1 if the brokers answered the last query for lag |
| `busway_build_info` | app, group, version | 1 |
| `process_*` | | of prometheus-client: CPU, memory, open files |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from busway.app.extending.extension import Call, Handling
from busway.app.model.topic import Route
from busway.app.monitoring.health import STALL_TIMEOUT_S, Health
from busway.app.service import RunningService
from busway.types import TopicPartition

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a handler that only computes to one that waits for another service."""


class Metrics(Health):
    """Counters of handlers, with the app's health for lag and progress; arguments as for `Health`."""

    def __init__(self, *, stall_timeout_s: float = STALL_TIMEOUT_S, clock: Callable[[], float] | None = None) -> None:
        super().__init__(stall_timeout_s=stall_timeout_s, clock=clock)
        registry = CollectorRegistry(auto_describe=False)
        self.registry: CollectorRegistry = registry
        where = ("topic", "handler")
        self._records = Counter(
            "busway_handler_records", "Records given to handlers.", (*where, "outcome"), registry=registry
        )
        self._seconds = Histogram(
            "busway_handler_duration_seconds", "Calls of handlers.", where, registry=registry, buckets=BUCKETS_S
        )
        self._retries = Counter("busway_handler_retries", "Calls that are made again.", where, registry=registry)
        self._dead = Counter("busway_dead_letters", "Dead-lettered records.", where, registry=registry)
        self._in_flight = Gauge("busway_handler_in_flight", "Calls under way.", ("handler",), registry=registry)
        self._rebalances = Counter("busway_rebalances", "How often partitions came or went.", registry=registry)
        self._build = Gauge("busway_build_info", "What runs.", ("app", "group", "version"), registry=registry)
        self._of: dict[tuple[str, str, str], Callable[[Handling], None]] = {}
        registry.register(_Partitions(self))
        ProcessCollector(registry=registry)

    async def exposition(self) -> bytes:
        await self.look()
        return generate_latest(self.registry)

    # Extension

    async def starting(self, app: RunningService) -> None:
        await super().starting(app)
        self._build.clear()
        self._build.labels(app.name, app.group_id, version("busway")).set(1)

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._rebalances.inc()
        return await super().assigned(partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._rebalances.inc()
        await super().revoked(partitions)

    def around(self, route: Route, call: Call) -> Call:
        in_flight = self._in_flight.labels(route.name)

        async def counted(record: Any) -> Any:
            in_flight.inc()
            try:
                return await call(record)
            finally:
                in_flight.dec()

        return counted

    def finished(self, handling: Handling) -> None:
        super().finished(handling)
        key = (handling.topic, handling.route.name, handling.outcome)
        if (count := self._of.get(key)) is None:
            count = self._of[key] = self._counting(*key)
        count(handling)

    def _counting(self, topic: str, handler: str, outcome: str) -> Callable[[Handling], None]:
        """Return the counter of calls with these labels; cached, because label lookups cost more than counting."""
        records = self._records.labels(topic, handler, outcome)
        seconds = self._seconds.labels(topic, handler)
        retries = self._retries.labels(topic, handler)
        dead = self._dead.labels(topic, handler)

        def count(handling: Handling) -> None:
            records.inc(handling.records)
            seconds.observe(handling.seconds)
            if outcome == "retried":
                retries.inc()
            elif outcome == "dead_lettered":
                dead.inc(handling.records)

        return count


class _Partitions(Collector):
    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        where = ("topic", "partition")
        offsets = GaugeMetricFamily("busway_committed_offset", "The group's offset.", labels=where)
        lags = GaugeMetricFamily("busway_lag_records", "Records behind the group's offset.", labels=where)
        idle = GaugeMetricFamily(
            "busway_seconds_since_progress", "Since a record was finished, or the partition came.", labels=where
        )
        partitions = self._health.progress.all(self._health.now_s())
        for progress in partitions:
            labels = (progress.partition.topic, str(progress.partition.partition))
            idle.add_metric(labels, progress.idle_s)
            if progress.committed is not None:
                offsets.add_metric(labels, progress.committed)
            if progress.lag is not None and self._health.unreachable is None:
                lags.add_metric(labels, progress.lag)
        parked = GaugeMetricFamily("busway_parked_records", "Records that wait for their next attempt.", labels=where)
        for partition, count in self._health.parked().items():
            parked.add_metric((partition.topic, str(partition.partition)), count)
        yield from (offsets, lags, idle, parked)
        yield GaugeMetricFamily(
            "busway_assigned_partitions", "Partitions that this process has.", value=len(partitions)
        )
        reachable = 1 if self._health.unreachable is None else 0
        if (made := self._health.transactions()) is not None:
            outcomes = CounterMetricFamily(
                "busway_transactions", "Transactions, by what became of them.", labels=["outcome"]
            )
            outcomes.add_metric(["committed"], made.committed)
            outcomes.add_metric(["aborted"], made.aborted)
            yield outcomes
            yield CounterMetricFamily(
                "busway_transaction_renewals", "How often transactions needed a new producer.", value=made.renewed
            )
        yield GaugeMetricFamily("busway_brokers_reachable", "Whether the brokers answered.", value=reachable)
