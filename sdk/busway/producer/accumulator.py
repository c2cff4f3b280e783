"""Unsent and unacknowledged batches by partition, in order.

Here: filling batches, and an idempotent producer's sequence numbers (KIP-98, KIP-360).
Not here: sending (`sender`), clocks. A partition has at most one batch in flight, so that a retry never overtakes later
records.

An acknowledgement uses up sequence numbers, so an unwritten batch leaves no gap. A failed batch that may have been
written ends the partition's epoch: in that epoch, the broker would take the next batch for a duplicate. Each partition
has a separate epoch, as in the broker, so that no other has to wait.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from busway.errors import BuswayError
from busway_protocol.records.builder import BatchBuilder

RECORD_OVERHEAD = 24
"""Upper bound of a record's bytes beside key, value and headers."""
SEQUENCES = 2**31
EPOCH_MAX = 2**15 - 1

Partition = tuple[str, int]


Waiter = tuple[int, int, Any]
"""Position, timestamp and future of a record, which may also stand for later ones."""


@dataclass(slots=True, eq=False)
class SharedFutures:
    """Records of one partition with one future per batch, created by `make_future`."""

    make_future: Callable[[], Any]
    futures: list[Any] = field(default_factory=list)
    batch: "Batch | None" = None


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition, and their waiters by position.

    Attributes:
        shared: futures of waiters that stand for later records as well.
        uncertain: it was sent, and may have been written.
        halved: part of a larger batch that was refused for its size.
        given_up: expired in flight; its waiters have failed, only its sequence numbers matter.
    """

    partition: Partition
    builder: BatchBuilder
    created: float
    due: float
    waiters: list[Waiter] = field(default_factory=list)
    shared: set[Any] = field(default_factory=set)
    common: Any = None
    encoded: bytes | None = None
    uncertain: bool = False
    halved: bool = False
    given_up: bool = False
    problem: BuswayError | None = None
    size: int = 0
    settled: bool = False


@dataclass(slots=True)
class _Queue:
    """A partition's batches.

    `batch_size` is below the producer's if the topic's limit is lower. `spent` is the producer id whose last epoch was
    used up here.
    """

    batch_size: int
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: bool = False
    retry_at: float = 0.0
    producer_id: int = -1
    epoch: int = 0
    next_sequence: int = 0
    spent: int | None = None

    def renew(self, *, identity: bool) -> None:
        """Start sequence 0 of the next epoch or a new producer id."""
        self.next_sequence = 0
        if identity or self.epoch == EPOCH_MAX:
            self.spent, self.producer_id = self.producer_id, -1
        else:
            self.epoch += 1
        if self.batches:
            self.batches[0].encoded = None


class Accumulator:
    """All batches of a producer; full at `batch_size` bytes, otherwise sent after `linger_s`.

    If `transactional`, the epoch comes from the transaction coordinator, the same for all partitions.
    """

    def __init__(self, *, batch_size: int, linger_s: float, compression: str, transactional: bool = False) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._compression = compression
        self._transactional = transactional
        self._queues: dict[Partition, _Queue] = {}
        self.buffered: int = 0
        self.flushing = 0

    def append(  # noqa: PLR0917 - called for every record: keyword arguments would cost a tenth of its time
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
        """Add a record, with encoded headers; return whether to wake the sender: a batch was opened or became full.

        `waiter` is a future or `SharedFutures`; None if `common` follows.
        """
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue(self._batch_size)
        batches = queue.batches
        batch = batches[-1] if batches else None
        opened = False
        if batch is None or batch.encoded is not None or batch.builder.size_bytes + size > queue.batch_size:
            builder = BatchBuilder(self._compression, transactional=self._transactional)
            batch = Batch(partition, builder, now, now + self._linger_s)
            opened = True
        builder = batch.builder
        builder.append_encoded(timestamp_ms, key, value, headers)
        if opened:
            batches.append(batch)  # after the encoding, whose failure must not leave an empty batch behind
        if waiter is None:
            pass
        elif type(waiter) is not SharedFutures:
            batch.waiters.append((builder.count - 1, timestamp_ms, waiter))
        elif waiter.batch is not batch:
            future = waiter.make_future()
            waiter.batch = batch
            waiter.futures.append(future)
            batch.waiters.append((builder.count - 1, timestamp_ms, future))
            batch.shared.add(future)
        batch.size += size
        self.buffered += size
        return opened or builder.size_bytes >= queue.batch_size

    def common(self, partition: Partition, timestamp_ms: int, make_future: Callable[[], Any]) -> Any:
        batch = self._queues[partition].batches[-1]
        if batch.common is None:
            batch.common = make_future()
            batch.waiters.append((batch.builder.count - 1, timestamp_ms, batch.common))
            batch.shared.add(batch.common)
        return batch.common

    def ready(self, now: float) -> tuple[list[Partition], float | None]:
        ready = []
        soonest: float | None = None
        for partition, queue in self._queues.items():
            if queue.in_flight or not queue.batches:
                continue
            first = queue.batches[0]
            full = len(queue.batches) > 1 or first.builder.size_bytes >= queue.batch_size
            due = queue.retry_at
            if not (full or self.flushing or first.encoded is not None):
                due = max(due, first.due)
            if due <= now:
                ready.append(partition)
            elif soonest is None or due < soonest:
                soonest = due
        return ready, soonest

    def lacks_identity(self, partition: Partition, producer_id: int) -> bool:
        queue = self._queues[partition]
        return queue.producer_id < 0 and queue.spent == producer_id

    def take(self, partition: Partition, producer_id: int, epoch: int = 0) -> Batch:
        """Return a partition's first batch, encoded; mute the partition until it is settled.

        `producer_id` is for a partition without one, -1 unless idempotent. A change of the transactional `epoch`
        restarts at sequence 0.
        """
        queue = self._queues[partition]
        assert not queue.in_flight
        queue.in_flight = True
        batch = queue.batches[0]
        if batch.encoded is None:
            builder = batch.builder
            if producer_id >= 0:
                if self._transactional and (queue.producer_id, queue.epoch) != (producer_id, epoch):
                    queue.producer_id, queue.epoch, queue.next_sequence = producer_id, epoch, 0
                elif queue.producer_id < 0:
                    queue.producer_id, queue.epoch = producer_id, 0
                builder.producer_id, builder.producer_epoch = queue.producer_id, queue.epoch
                builder.base_sequence = queue.next_sequence
            batch.encoded = builder.build()
        return batch

    def acknowledged(self, batch: Batch) -> None:
        queue = self._queues[batch.partition]
        queue.next_sequence = (queue.next_sequence + batch.builder.count) % SEQUENCES
        self._drop(queue, batch)

    def failed(self, batch: Batch) -> bool:
        """Remove a failed batch; return whether the epoch has ended.

        The epoch is the partition's, or in a transaction the producer's.
        """
        queue = self._queues[batch.partition]
        self._drop(queue, batch)
        ends = batch.uncertain and queue.producer_id >= 0
        if ends and not self._transactional:
            queue.renew(identity=False)
        return ends

    def _drop(self, queue: _Queue, batch: Batch) -> None:
        if queue.batches[0] is batch:  # only the first can be in flight
            queue.in_flight = False
        queue.batches.remove(batch)
        self.buffered -= batch.size
        batch.settled = True

    def retry(self, batch: Batch, at: float) -> None:
        queue = self._queues[batch.partition]
        queue.in_flight = False
        queue.retry_at = at

    def retry_renewed(self, batch: Batch, at: float, *, identity: bool = False) -> None:
        self.retry(batch, at)
        batch.uncertain = False
        self._queues[batch.partition].renew(identity=identity)

    def split(self, batch: Batch) -> None:
        """Replace a batch that is too large for its topic by two halves; limit later ones.

        The topic's limit may be of compressed bytes, which only halving finds (KAFKA-8350).
        """
        queue = self._queues[batch.partition]
        assert queue.batches[0] is batch
        queue.in_flight = False
        queue.batches.popleft()
        queue.batches.extendleft(reversed(_halves(batch)))
        queue.batch_size = min(queue.batch_size, batch.builder.size_bytes // 2)

    def expired(self, now: float, timeout_s: float) -> tuple[list[Batch], float]:
        """Return batches older than the timeout, and when the next expires.

        Those in flight become `given_up`.
        """
        expired = []
        soonest = now + timeout_s
        for queue in self._queues.values():
            for batch in queue.batches:
                if now - batch.created < timeout_s:
                    soonest = min(soonest, batch.created + timeout_s)
                    break  # later ones are younger
                if not batch.given_up:
                    batch.given_up = self.is_under_way(batch)
                    expired.append(batch)
        return expired, soonest

    def is_under_way(self, batch: Batch) -> bool:
        queue = self._queues[batch.partition]
        return queue.in_flight and queue.batches[0] is batch

    def all_batches(self) -> list[Batch]:
        return [batch for queue in self._queues.values() for batch in queue.batches]


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    builders = batch.builder.halves()
    middle = builders[0].count
    first, second = (
        Batch(batch.partition, builder, batch.created, batch.due, uncertain=batch.uncertain, halved=True)
        for builder in builders
    )
    second.size = batch.size * second.builder.size_bytes // batch.builder.size_bytes
    first.size = batch.size - second.size
    for position, timestamp_ms, future in batch.waiters:
        if position >= middle:
            second.waiters.append((position - middle, timestamp_ms, future))
            if future in batch.shared:
                second.shared.add(future)
        elif future not in batch.shared:
            first.waiters.append((position, timestamp_ms, future))
        else:
            of_first, of_second = _parts(future)
            first.waiters.append((position, timestamp_ms, of_first))
            first.shared.add(of_first)
            second.waiters.insert(0, (0, timestamp_ms, of_second))
            second.shared.add(of_second)
    return first, second


def _parts(whole: Any) -> tuple[Any, Any]:
    """Create futures for both halves; when both are done, `whole` gets the first one's result."""
    first, second = (whole.get_loop().create_future() for _ in range(2))

    def settle(_: Any) -> None:
        if whole.done() or not (first.done() and second.done()):
            return
        problem = first.exception() or second.exception()
        if problem is None:
            whole.set_result(first.result())
        else:
            whole.set_exception(problem)
            whole.exception()  # mark as retrieved: it need not be awaited

    for part in (first, second):
        part.add_done_callback(settle)
    return first, second
