"""The options of producers and consumers: one object each, keyword-only, documented once.

What lives here: names, units, defaults and their checks. Names are those of Kafka's client configuration in snake case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from busway_protocol.records.compression import CODECS

Partitioner = Callable[[str, bytes | None, int], int]
"""(topic, key, number of partitions) → partition."""
ACKS: Final[dict[str | int, int]] = {"all": -1, -1: -1, 1: 1, "1": 1, 0: 0, "0": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer works.

    Attributes:
        acks: "all", 1 or 0: who must have a record before it counts as sent.
        enable_idempotence: a retried batch is written once; needs acks="all".
        linger_ms: a batch that is not full waits so long for more records.
        batch_size: bytes after which a batch is full.
        compression_type: none, gzip, snappy, lz4 or zstd.
        max_in_flight: requests on their way to one broker at a time.
        max_request_size: bytes of the largest record and request.
        buffer_memory: bytes of records that wait; `send` waits when they are reached.
        partitioner: chooses the partition; by default murmur2 of the key, or a partition kept for a batch without one.
        request_timeout_ms: wait for an answer.
        delivery_timeout_ms: from `send` to success or failure, retries included.
        metadata_timeout_ms: wait for a topic that is not there yet.
    """

    acks: Literal["all", -1, 1, 0] = "all"
    enable_idempotence: bool = True
    linger_ms: float = 5
    batch_size: int = 64 * 1024
    compression_type: str = "none"
    max_in_flight: int = 5
    max_request_size: int = 1_048_576
    buffer_memory: int = 32 * 1024 * 1024
    partitioner: Partitioner | None = None
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    metadata_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in ACKS:
            raise ValueError(f"acks: {self.acks!r} is not 'all', 1 or 0")
        if self.enable_idempotence and ACKS[self.acks] != -1:
            raise ValueError("enable_idempotence needs acks='all'; set enable_idempotence=False for less")
        if self.compression_type not in CODECS:
            raise ValueError(f"compression_type: {self.compression_type!r} is not one of {', '.join(CODECS)}")
        _positive(self, "batch_size", "max_in_flight", "max_request_size", "buffer_memory", "delivery_timeout_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer works.

    Attributes:
        group_id: the group to share partitions with; None reads without a group.
        group_instance_id: makes the member static, so that a restart moves no partitions (KIP-345).
        auto_offset_reset: where to begin without a committed offset: earliest, latest, or none for an error.
        enable_auto_commit, auto_commit_interval_ms: commit what was handed out, every so many ms.
        session_timeout_ms, heartbeat_interval_ms: a member that is silent for so long is out; how often it shows itself.
        max_poll_interval_ms: a member that asks for no records for so long leaves its group.
        partition_assignment_strategy: range, roundrobin, sticky, cooperative-sticky, best first; the group takes one that all its members
            offer. With cooperative-sticky members keep reading what they keep through a rebalance; with the others they give up everything
            first. By default a group is cooperative as soon as all its members can be.
        isolation_level: read_uncommitted or read_committed.
        fetch_min_bytes, fetch_max_wait_ms, fetch_max_bytes, max_partition_fetch_bytes: how much a fetch brings, and when.
        max_poll_records: most records that one `getmany` hands out.
        check_crcs: verify the checksum of every batch.
        metadata_max_age_ms: topics are looked at anew so often: for more partitions, and for new names that a pattern matches.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    partition_assignment_strategy: tuple[str, ...] = ("cooperative-sticky", "range")
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    max_poll_records: int = 500
    check_crcs: bool = True
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in {"earliest", "latest", "none"}:
            raise ValueError(f"auto_offset_reset: {self.auto_offset_reset!r} is not earliest, latest or none")
        if self.isolation_level not in {"read_uncommitted", "read_committed"}:
            raise ValueError(f"isolation_level: {self.isolation_level!r} is not read_uncommitted or read_committed")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms, a third of it is usual")
        _positive(self, "max_poll_records", "max_partition_fetch_bytes", "fetch_max_bytes", "session_timeout_ms")
        _positive(self, "metadata_max_age_ms")


def _positive(options: Any, *names: str) -> None:
    for name in names:
        if getattr(options, name) <= 0:
            raise ValueError(f"{name}: {getattr(options, name)} is not above 0")
