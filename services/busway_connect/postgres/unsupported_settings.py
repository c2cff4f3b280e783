"""Unsupported settings of Debezium 3.7's PostgreSQL connector.

Here: settings accepted without effect, and why records stay the same; settings accepted only with the built-in
behaviour's value; replacements for removed names. All others are refused.
Not here: supported settings (`settings`).
"""

from collections.abc import Mapping
from typing import Final

_PACE: Final = "how fast, how often tried and how long waited for; no record is another one for it"
_NO_SIGNALS: Final = "signals and incremental snapshots, which nothing here starts"
_MEMORY: Final = "how Debezium keeps what it knows in memory"

INERT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "poll.interval.ms",
            "query.fetch.size",
            "database.query.timeout.ms",
            "database.tcpKeepAlive",
            "connection.validation.timeout.ms",
            "executor.shutdown.timeout.ms",
            "retriable.restart.connector.wait.ms",
            "errors.max.retries",
            "lsn.flush.timeout.ms",
            "lsn.flush.timeout.action",
            "snapshot.lock.timeout.ms",
            "snapshot.max.threads",
            "snapshot.max.threads.multiplier",
            "legacy.snapshot.max.threads",
            "snapshot.tables.order.by.row.count",
        ),
        _PACE,
    ),
    **dict.fromkeys(
        (
            "incremental.snapshot.chunk.size",
            "incremental.snapshot.allow.schema.changes",
            "incremental.snapshot.watermarking.strategy",
            "signal.poll.interval.ms",
            "signal.emit.failure.max.retries",
            "signal.emit.failure.backoff.ms",
            "read.only",
        ),
        _NO_SIGNALS,
    ),
    **dict.fromkeys(
        (
            "memory.management.schemas.class",
            "memory.management.tables.class",
            "schema.refresh.mode",
            "topic.cache.size",
        ),
        _MEMORY,
    ),
    "statistics.metrics.enabled": "Debezium's own metrics",
    "custom.metric.tags": "names of Debezium's own metrics",
}

FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic.naming.strategy": ("io.debezium.schema.schematopicnamingstrategy",),
    "topic.delimiter": (".",),
    "sourceinfo.struct.maker": ("io.debezium.connector.postgresql.postgressourceinfostructmaker",),
    "transaction.metadata.factory": ("io.debezium.pipeline.txmetadata.defaulttransactionmetadatafactory",),
    "event.processing.failure.handling.mode": ("fail",),
    "snapshot.query.mode": ("select_all",),
    "signal.enabled.channels": ("source",),
    "flush.lsn.source": ("true",),
    "table.ignore.builtin": ("true",),
    "xmin.fetch.interval.ms": ("0",),
    "snapshot.delay.ms": ("0",),
    "streaming.delay.ms": ("0",),
    "guardrail.collections.max": ("0",),
    **dict.fromkeys(
        (
            "skip.messages.without.change",
            "include.schema.comments",
            "publish.via.partition.root",
            "slot.failover",
            "openlineage.integration.enabled",
        ),
        ("false",),
    ),
}

INSTEAD: Final[Mapping[str, str]] = {
    "database.server.name": "set topic.prefix",
    "topic.heartbeat.prefix": "set heartbeat.topics.prefix",
    **{
        f"{kind}.{old}": f"set {kind}.{new}"
        for kind in ("schema", "table", "column")
        for old, new in (("whitelist", "include.list"), ("blacklist", "exclude.list"))
    },
}
