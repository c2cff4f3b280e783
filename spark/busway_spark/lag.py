"""Lag of streaming queries, for people and tools.

Here: a Spark listener with figures for Prometheus and a callback, and progress as a consumer group's offsets.
Not here: reactions to lag.
"""
# mypy: allow-subclassing-any

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming import StreamingQueryListener

from busway import Admin, BuswayError, SecurityOptions, TopicPartition
from busway_spark.offsets import from_json

_FIGURES: Final = {
    "busway_spark_offsets_behind_latest": "Records between what the query has read and the end of its topics.",
    "busway_spark_input_rows_per_second": "Rows that came in, by Spark's own reckoning.",
    "busway_spark_processed_rows_per_second": "Rows that were worked on, by Spark's own reckoning.",
    "busway_spark_batch_duration_seconds": "How long the last micro-batch took.",
    "busway_spark_batch_id": "Number of the last micro-batch.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A query's progress after a micro-batch.

    Attributes:
        query: name, or id without one.
        offsets: next to read, of every partition.
        behind: offsets to the topic's end; control records count, so it may stay slightly above zero.
    """

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    processed_rows_per_second: float
    duration_s: float
    offsets: dict[TopicPartition, int]
    behind: dict[TopicPartition, int]

    @property
    def behind_total(self) -> int:
        return sum(self.behind.values())


class LagListener(StreamingQueryListener):
    """Follows all streaming queries of a session: `spark.streams.addListener(LagListener(...))`.

    Args:
        callback: called after every micro-batch.
        text_file: written after every micro-batch for the textfile collector of Prometheus' node exporter.
        port: serves figures over HTTP.
        group: commits progress for this consumer group, see `commit_group`; `{query}` is the query's name.

    Raises:
        ValueError: a group without servers.
        ImportError: `prometheus_client` is not installed: pip install 'busway[web]'.
    """

    def __init__(
        self,
        *,
        callback: Callable[[Progress], None] | None = None,
        text_file: str | None = None,
        port: int | None = None,
        group: str | None = None,
        bootstrap_servers: str | None = None,
        security: SecurityOptions | None = None,
    ) -> None:
        if group is not None and bootstrap_servers is None:
            raise ValueError("a group to commit to needs bootstrap_servers")
        self._callback = callback
        self._text_file = text_file
        self._group = group
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self.commit_problem: BuswayError | None = None
        """Why the last commit failed; the query continues, as its checkpoint has the progress."""
        self._gauges: dict[str, Any] = {}
        if text_file is not None or port is not None:
            from prometheus_client import CollectorRegistry, Gauge, start_http_server

            self._registry = CollectorRegistry()
            self._gauges = {
                name: Gauge(name, text, ["query"], registry=self._registry) for name, text in _FIGURES.items()
            }
            if port is not None:
                start_http_server(port, registry=self._registry)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.take(json.loads(event.progress.json))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Keep its last figures."""

    def take(self, report: dict[str, Any]) -> None:
        """Process a progress report, Spark's JSON."""
        progress = progress_of(report)
        if self._gauges:
            self._show(progress)
        if self._group is not None and progress.offsets:
            assert self._bootstrap_servers is not None
            try:
                commit_group(
                    progress,
                    self._group.format(query=progress.query),
                    bootstrap_servers=self._bootstrap_servers,
                    security=self._security,
                )
                self.commit_problem = None
            except BuswayError as problem:
                self.commit_problem = problem
        if self._callback is not None:
            self._callback(progress)

    def _show(self, progress: Progress) -> None:
        values = (
            progress.behind_total,
            progress.rows_per_second,
            progress.processed_rows_per_second,
            progress.duration_s,
            progress.batch_id,
        )
        for name, value in zip(_FIGURES, values, strict=True):
            self._gauges[name].labels(query=progress.query).set(value)
        if self._text_file is not None:
            from prometheus_client import write_to_textfile

            write_to_textfile(self._text_file, self._registry)


def progress_of(report: dict[str, Any]) -> Progress:
    """Return a parsed `StreamingQueryProgress.json`'s figures, for any source."""
    offsets: dict[TopicPartition, int] = {}
    behind: dict[TopicPartition, int] = {}
    for source in report["sources"]:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        offsets |= end
        behind |= {partition: max(0, latest.get(partition, at) - at) for partition, at in end.items()}
    return Progress(
        query=report.get("name") or report["id"],
        batch_id=report["batchId"],
        rows=report["numInputRows"],
        rows_per_second=report.get("inputRowsPerSecond") or 0.0,
        processed_rows_per_second=report.get("processedRowsPerSecond") or 0.0,
        duration_s=report["batchDuration"] / 1000,
        offsets=offsets,
        behind=behind,
    )


def _offsets(given: Any) -> dict[TopicPartition, int]:
    try:
        return from_json(json.loads(given) if isinstance(given, str) else given)
    except (AttributeError, TypeError, ValueError):
        return {}


def commit_group(
    progress: Progress, group: str, *, bootstrap_servers: str, security: SecurityOptions | None = None
) -> None:
    """Publish a query's progress as offsets of a memberless consumer group, which are never read back; raises
    `BrokerError` if it has members, `ConnectionFailed`.

    Args:
        security: TLS and SASL; by default the environment's, else plain text.
    """
    asyncio.run(_commit(progress.offsets, group, bootstrap_servers, security))


async def _commit(
    offsets: dict[TopicPartition, int], group: str, bootstrap_servers: str, security: SecurityOptions | None
) -> None:
    async with Admin(bootstrap_servers, security=security) as admin:
        await admin.alter_group_offsets(group, offsets)
