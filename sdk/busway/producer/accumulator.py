"""Records on their way: batches by partition, in order.

What lives here: where a record goes, when a batch is full, due or too old, and the sequence numbers of an idempotent producer
(KIP-98, KIP-360). What does not: sending (`sender`), clocks (times come in). A partition has at most one batch under way, so
that a retry can never overtake what follows it.

Sequence numbers are used up by the acknowledgement, so a batch that was never written leaves no gap behind. One that is given up and
may have been written ends the partition's epoch: in the same one, the broker would take the next batch for its repetition. Epochs are
the partition's own, as the broker keeps them, so that no other partition has to wait.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from busway.errors import BuswayError
from busway_protocol.records.builder import BatchBuilder

RECORD_OVERHEAD = 24
"""Bytes that a record may need beside key, value and headers; an upper estimate."""
SEQUENCES = 2**31
EPOCH_MAX = 2**15 - 1
"""After it, a new producer id is needed."""

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
    """Records for one partition, and who waits for them, by position.

    Attributes:
        shared: those of the waiters' futures that stand for records further behind as well.
        common: the one of them that stands for all that came without their own.
        uncertain: it was sent, and no answer tells that it was not written.
        halved: it was part of a larger one that was refused for its size.
        given_up: it took too long while it was under way; nobody waits for it any more, only its sequence numbers matter.
        problem: why it was not acknowledged the last time.
        settled: it is acknowledged or has failed, and is no partition's any more.
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

    Attributes:
        batch_size: bytes after which a batch is full; less than the producer's own where the topic takes less.
        spent: the producer id whose last epoch was used up here.
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
        """Begin at sequence 0 of the next epoch, or of a new producer id; a batch that waits is encoded anew."""
        self.next_sequence = 0
        if identity or self.epoch == EPOCH_MAX:
            self.spent, self.producer_id = self.producer_id, -1
        else:
            self.epoch += 1
        if self.batches:
            self.batches[0].encoded = None


class Accumulator:
    """All batches of a producer.

    Args:
        batch_size: bytes after which a batch is full.
        linger_s: how long one that is not full waits.
        compression: codec name.
        transactional: whether records belong to transactions; then the epoch is the producer's own, as its transaction coordinator gives
            it, and not the partitions'.
    """

    def __init__(self, *, batch_size: int, linger_s: float, compression: str, transactional: bool = False) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._compression = compression
        self._transactional = transactional
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
            waiter: the future of who waits for it, or `Together` with others; None where `common` is asked for next.
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
            batches.append(batch)  # only now: a record that cannot be encoded leaves no empty batch behind
        if waiter is None:
            pass
        elif type(waiter) is not Together:
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
        """The future that stands for the record that was added last, of that time, and for all others of its batch that this was asked for."""
        batch = self._queues[partition].batches[-1]
        if batch.common is None:
            batch.common = make_future()
            batch.waiters.append((batch.builder.count - 1, timestamp_ms, batch.common))
            batch.shared.add(batch.common)
        return batch.common

    def ready(self, now: float) -> tuple[list[Partition], float | None]:
        """Partitions whose first batch is to be sent now, and the moment when the next one will be."""
        found = []
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
                found.append(partition)
            elif soonest is None or due < soonest:
                soonest = due
        return found, soonest

    def lacks_identity(self, partition: Partition, producer_id: int) -> bool:
        """Whether the partition needs another producer id than this one before it can go on."""
        queue = self._queues[partition]
        return queue.producer_id < 0 and queue.spent == producer_id

    def take(self, partition: Partition, producer_id: int, epoch: int = 0) -> Batch:
        """The first batch of a partition, encoded; the partition is muted until the batch is settled.

        Args:
            producer_id: of an idempotent producer, for a partition that has none yet; else -1.
            epoch: of a transactional producer; a partition that has another one begins at sequence 0.
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
        """The batch has been written: its sequence numbers are used up."""
        queue = self._queues[batch.partition]
        queue.next_sequence = (queue.next_sequence + batch.builder.count) % SEQUENCES
        self._drop(queue, batch)

    def failed(self, batch: Batch) -> bool:
        """The batch is given up; answers whether that ended the partition's epoch, or in a transaction the producer's."""
        queue = self._queues[batch.partition]
        self._drop(queue, batch)
        ends = batch.uncertain and queue.producer_id >= 0
        if ends and not self._transactional:
            queue.renew(identity=False)
        return ends

    def _drop(self, queue: _Queue, batch: Batch) -> None:
        if queue.batches[0] is batch:  # only the first one can be under way
            queue.in_flight = False
        queue.batches.remove(batch)
        self.buffered -= batch.size
        batch.settled = True

    def retry(self, batch: Batch, at: float) -> None:
        """Send the batch again, not before `at`."""
        queue = self._queues[batch.partition]
        queue.in_flight = False
        queue.retry_at = at

    def retry_renewed(self, batch: Batch, at: float, *, identity: bool = False) -> None:
        """Send the batch, which was certainly not written, under the partition's next epoch or another producer id; not before `at`."""
        self.retry(batch, at)
        batch.uncertain = False
        self._queues[batch.partition].renew(identity=identity)

    def split(self, batch: Batch) -> None:
        """Put two halves in the place of a batch that is larger than its topic takes, and make later ones no larger than these.

        The topic's limit may be of compressed bytes, so halving finds it where no reckoning would (KAFKA-8350).
        """
        queue = self._queues[batch.partition]
        assert queue.batches[0] is batch
        queue.in_flight = False
        queue.batches.popleft()
        queue.batches.extendleft(reversed(_halves(batch)))
        queue.batch_size = min(queue.batch_size, batch.builder.size_bytes // 2)

    def expired(self, now: float, timeout_s: float) -> tuple[list[Batch], float]:
        """Batches that have become too old, and the moment when the next one can be; those under way are `given_up` by this."""
        found = []
        soonest = now + timeout_s
        for queue in self._queues.values():
            for batch in queue.batches:
                if now - batch.created < timeout_s:
                    soonest = min(soonest, batch.created + timeout_s)
                    break  # those behind it are younger
                if not batch.given_up:
                    batch.given_up = self.is_under_way(batch)
                    found.append(batch)
        return found, soonest

    def is_under_way(self, batch: Batch) -> bool:
        """Whether a request holds it."""
        queue = self._queues[batch.partition]
        return queue.in_flight and queue.batches[0] is batch

    def all_batches(self) -> list[Batch]:
        """Every batch, for those who end a producer."""
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
    """Futures for both halves of what one stands for: it is done when both are, with where the first one was put."""
    first, second = (whole.get_loop().create_future() for _ in range(2))

    def settle(_: Any) -> None:
        if whole.done() or not (first.done() and second.done()):
            return
        problem = first.exception() or second.exception()
        if problem is None:
            whole.set_result(first.result())
        else:
            whole.set_exception(problem)
            whole.exception()  # nobody need await it

    for part in (first, second):
        part.add_done_callback(settle)
    return first, second
