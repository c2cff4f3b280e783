"""Records on their way: batches by partition, in order.

What lives here: where a record goes, when a batch is full, due or too old, and the sequence numbers of an idempotent producer
(KIP-98, KIP-360). What does not: sending (`sender`), clocks (times come in). A partition has at most one batch under way, so
that a retry can never overtake what follows it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from busway_protocol.records.builder import BatchBuilder

RECORD_OVERHEAD = 24
"""Bytes that a record may need beside key, value and headers; an upper estimate."""
SEQUENCES = 2**31

Partition = tuple[str, int]


Waiter = tuple[int, int, Any]
"""Position and timestamp of a record and the future of who waits for it, or for it and others behind it that came together."""


@dataclass(slots=True, eq=False)
class Together:
    """Records of one partition that are handed over together.

    Attributes:
        make_future: makes one for each batch that they get into.
        futures: those that were made.
        batch: the one that the last of them got into.
    """

    make_future: Callable[[], Any]
    futures: list[Any] = field(default_factory=list)
    batch: "Batch | None" = None


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition, and who waits for them, by position."""

    partition: Partition
    builder: BatchBuilder
    created: float
    due: float
    waiters: list[Waiter] = field(default_factory=list)
    encoded: bytes | None = None
    sequence: int = -1
    sent: bool = False
    size: int = 0


@dataclass(slots=True)
class _Queue:
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: bool = False
    retry_at: float = 0.0
    next_sequence: int = 0


class Accumulator:
    """All batches of a producer.

    Args:
        batch_size: bytes after which a batch is full.
        linger_s: how long one that is not full waits.
        compression: codec name.
    """

    def __init__(self, *, batch_size: int, linger_s: float, compression: str) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._compression = compression
        self._queues: dict[Partition, _Queue] = {}
        self.buffered = 0
        """Bytes of records that wait or are under way."""
        self.flushing = 0

    def append(  # noqa: PLR0917 - once for every record: keyword arguments would cost a tenth of it
        self,
        partition: Partition,
        now: float,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        size: int,
        waiter: Any,
    ) -> bool:
        """Add a record, its headers encoded; answers whether a batch was opened or became full, so that the sender should look.

        Args:
            waiter: the future of who waits for it, or `Together` with others.
        """
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        batches = queue.batches
        batch = batches[-1] if batches else None
        opened = False
        if batch is None or batch.encoded is not None or batch.builder.size_bytes + size > self._batch_size:
            batch = Batch(partition, BatchBuilder(self._compression), now, now + self._linger_s)
            opened = True
        builder = batch.builder
        builder.append_encoded(timestamp_ms, key, value, headers)
        if opened:
            batches.append(batch)  # only now: a record that cannot be encoded leaves no empty batch behind
        if type(waiter) is not Together:
            batch.waiters.append((builder.count - 1, timestamp_ms, waiter))
        elif waiter.batch is not batch:
            future = waiter.make_future()
            waiter.batch = batch
            waiter.futures.append(future)
            batch.waiters.append((builder.count - 1, timestamp_ms, future))
        batch.size += size
        self.buffered += size
        return opened or builder.size_bytes >= self._batch_size

    def ready(self, now: float) -> tuple[list[Partition], float | None]:
        """Partitions whose first batch is to be sent now, and the moment when the next one will be."""
        found = []
        soonest: float | None = None
        for partition, queue in self._queues.items():
            if queue.in_flight or not queue.batches:
                continue
            first = queue.batches[0]
            full = len(queue.batches) > 1 or first.builder.size_bytes >= self._batch_size
            due = queue.retry_at
            if not (full or self.flushing or first.encoded is not None):
                due = max(due, first.due)
            if due <= now:
                found.append(partition)
            elif soonest is None or due < soonest:
                soonest = due
        return found, soonest

    def take(self, partition: Partition, producer_id: int, epoch: int) -> Batch:
        """The first batch of a partition, encoded; the partition is muted until `done` or `retry`."""
        queue = self._queues[partition]
        assert not queue.in_flight
        queue.in_flight = True
        batch = queue.batches[0]
        if batch.encoded is None:
            builder = batch.builder
            if producer_id >= 0:
                builder.producer_id, builder.producer_epoch = producer_id, epoch
                batch.sequence = builder.base_sequence = queue.next_sequence
                queue.next_sequence = (queue.next_sequence + builder.count) % SEQUENCES
            batch.encoded = builder.build()
        return batch

    def done(self, batch: Batch) -> None:
        """The batch has succeeded or failed for good."""
        queue = self._queues[batch.partition]
        queue.in_flight = False
        queue.batches.remove(batch)
        self.buffered -= batch.size

    def retry(self, batch: Batch, at: float) -> None:
        """Send the batch again, not before `at`."""
        queue = self._queues[batch.partition]
        queue.in_flight = False
        queue.retry_at = at

    def expired(self, now: float, timeout_s: float) -> list[Batch]:
        """Batches that are too old and not under way."""
        return [
            batch
            for queue in self._queues.values()
            for position, batch in enumerate(queue.batches)
            if now - batch.created >= timeout_s and not (position == 0 and queue.in_flight)
        ]

    def reset_sequences(self) -> None:
        """Begin every partition at sequence 0 of a new epoch; nothing may be under way."""
        for queue in self._queues.values():
            assert not queue.in_flight
            queue.next_sequence = 0
            for batch in queue.batches:
                batch.encoded = None
                batch.sequence = -1

    @property
    def in_flight(self) -> bool:
        """Whether a batch is under way."""
        return any(queue.in_flight for queue in self._queues.values())

    @property
    def empty(self) -> bool:
        """Whether nothing waits or is under way."""
        return not any(queue.batches for queue in self._queues.values())

    def unresolved(self) -> Iterable[Partition]:
        """Partitions with a batch that was sent and may or may not have been written."""
        return [key for key, queue in self._queues.items() if queue.batches and queue.batches[0].sent]

    def all_batches(self) -> list[Batch]:
        """Every batch, for those who end a producer."""
        return [batch for queue in self._queues.values() for batch in queue.batches]
