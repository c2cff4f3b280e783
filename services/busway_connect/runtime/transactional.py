"""A source's records and offsets in one transaction (KIP-618), atomic for read_committed readers.

Here: transaction boundaries, like Kafka Connect 4.3.1's `ExactlyOnceWorkerSourceTask`.
Not here: the loop (`source_task`), leadership (`worker`).

A task takes over its predecessor's transactional id, which fences it and aborts its transaction, and only then reads
the offsets. A worker that was frozen asks its group before and after taking the id; if it still takes it from the new
leader, that one restarts from the committed offsets. Dead letters are outside the transaction and may repeat.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

from busway import Producer, TransactionFailed
from busway_connect.connector import Boundaries, Retriable, Source, SourceRecord
from busway_connect.overrides import producer_options
from busway_connect.runtime.delivery import Reached
from busway_connect.runtime.exactly_once import Mark, Written
from busway_connect.runtime.failures import TaskFailed
from busway_connect.runtime.leader import CLOSE_S, superseded
from busway_connect.runtime.task_context import TaskContext
from busway_connect.transaction_boundary import INTERVAL, boundary_of

_OWN_TOPIC: Final = "Source tasks may not produce to their own offsets topics when exactly-once support is enabled"
_EXPIRED: Final = (
    "The task {}-0 was unable to finish writing records to Kafka before its producer transaction expired. It may be necessary to"
    " reconfigure this connector in order for it to run healthily with exactly-once support. Options for this include: tune the"
    " connector's producer configuration for higher throughput, increase the transaction timeout for the connector's producers"
    " (producer.override.transaction.timeout.ms), decrease the offset commit interval (if using interval-based transaction boundaries),"
    " or use the 'poll' transaction boundary (if the connector is not already configured to use it)."
)


class Transactional:
    """Delivery of one run.

    Args:
        producer: started; used for no other transaction.
        dead_letters: producer of dead letters.
    """

    def __init__(self, parts: TaskContext, source: Source, producer: Producer, dead_letters: Producer) -> None:
        self.producer = producer
        self.dead_letters = dead_letters
        self.written: Written | None = None
        self._parts = parts
        self._source = source
        self._boundary = boundary_of(parts.config)
        self._interval_s = int(parts.config.get(INTERVAL, parts.flush_interval_s * 1000)) / 1000
        self._boundaries = source.boundaries = Boundaries() if self._boundary == "CONNECTOR" else None
        self._offsets = Reached()
        self._count = 0
        self._opened_at: float | None = None
        self._committed_at = time.monotonic()

    def begin(self) -> None:
        """Do nothing: a transaction begins with its first record."""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        return None

    async def sending(self, topic: str) -> None:
        if topic == self._parts.stores.offsets.topic:  # reading offsets at start would wait for this transaction
            raise TaskFailed(f"{_OWN_TOPIC}; let it write to another topic than {topic}")
        await self._open()

    async def _open(self) -> None:
        if self._opened_at is None:
            await self.producer.begin_transaction()
            self._opened_at = time.monotonic()

    async def took(self, record: SourceRecord, waiter: "asyncio.Future[Any] | None") -> None:
        """Add the record's offset; end the transaction if the source requests it."""
        if waiter is not None:
            self._count += 1
            waiter.add_done_callback(_looked_at)
        self._offsets.add(record)
        if self._boundaries is not None:
            await self._as_asked(self._boundaries.due(record))

    async def batch_over(self) -> None:
        """End the transaction at a poll boundary, when due, or on request."""
        if self._boundaries is not None:
            await self._as_asked(self._boundaries.due())
        elif self._boundary == "POLL" or time.monotonic() - self._committed_at >= self._interval_s:
            await self._commit()

    async def _as_asked(self, wish: str | None) -> None:
        if wish == "abort" and self._opened_at is not None:
            await self.producer.abort_transaction()
            self._opened_at, self._count = None, 0
        if wish is not None:
            await self._commit()  # after an abort too: the source must not return these records again

    async def pause(self) -> None:
        """Commit, as an open transaction would expire; sources with own boundaries must handle that themselves."""
        if self._boundaries is None:
            await self._commit()

    async def end(self, *, failed: bool) -> None:
        """Commit records after the last boundary, unless the run failed."""
        if not failed:
            await self.pause()

    async def _commit(self) -> None:
        self._committed_at = time.monotonic()
        if self._opened_at is None and not self._offsets:
            return
        offsets, name, counts = self._parts.stores.offsets, self._parts.name, self._parts.counts
        chosen = self._offsets.take()
        await self._open()
        sent = [await offsets.send(self.producer, name, *partition_offset) for partition_offset in chosen]
        for record in sent:
            record.waiter.add_done_callback(_looked_at)
        await self.producer.commit_transaction()
        offsets.committed(sent)
        counts.written_records += self._count
        counts.offset_commits += 1
        self._opened_at, self._count = None, 0
        for _, offset in chosen:
            await self._source.committed(offset)

    def expired(self) -> bool:
        limit_s = self.producer.options.transaction_timeout_ms / 1000
        return self._opened_at is not None and time.monotonic() - self._opened_at >= limit_s


def _looked_at(waiter: "asyncio.Future[Any]") -> None:
    """Retrieve the exception: the commit fails with it anyway."""
    if not waiter.cancelled():
        waiter.exception()


@contextlib.asynccontextmanager
async def transactional(parts: TaskContext, source: Source, transactional_id: str) -> AsyncIterator[Transactional]:
    """Open a run's delivery. Fences the id's previous owner and reads its committed offsets.

    Raises:
        TurnOver: another worker has taken over.
        BuswayError: the brokers are unreachable, or refuse the id.
    """
    options = {"client_id": f"connector-producer-{parts.name}-0", **producer_options(parts.config)}
    await parts.confirm_turn()
    async with AsyncExitStack() as stack:
        # A failed record aborts its transaction, so retries beyond the transaction's timeout are useless.
        timeout_ms = options.get("transaction_timeout_ms", 60_000)
        producer = Producer(
            parts.bootstrap, transactional_id=transactional_id, delivery_timeout_ms=timeout_ms, **options
        )
        await producer.start()
        stack.push_async_callback(producer.stop, CLOSE_S)
        await parts.confirm_turn()
        await parts.stores.offsets.catch_up(parts.bootstrap)
        dead_letters = producer
        if parts.tolerance.dead_letter_topic:
            dead_letters = Producer(parts.bootstrap, **options)
            await dead_letters.start()
            stack.push_async_callback(dead_letters.stop, CLOSE_S)
        delivery = Transactional(parts, source, producer, dead_letters)
        try:
            yield delivery
        except TransactionFailed as problem:
            if superseded(problem) and delivery.expired():
                raise Retriable(_EXPIRED.format(parts.name)) from problem
            raise
