"""Records of a source and its offsets in one transaction (KIP-618): visible together to who reads committed records, or never.

What lives here: when a transaction begins and ends, after Kafka Connect 4.3.1's `ExactlyOnceWorkerSourceTask`. What does not: the loop
(`source_task`), whose turn it is (`worker`).

A task takes the transactional id of its predecessor over, which fences it and aborts what it has open, and only then reads the offsets. A
worker that was frozen asks its group before and after it takes the id; where it comes between all the same, the one it fenced begins
again from what is committed. A dead letter is no part of the transaction: it may be there twice.
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
    """One run's delivery.

    Args:
        producer: started; takes part in no other transaction.
        dead_letters: of its own.
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
        """Nothing: a transaction begins with its first record."""

    def mark(self, record: SourceRecord) -> tuple[Mark, bytes] | None:
        """None: what is in the topics, and who put it there, the brokers know."""
        return None

    async def sending(self, topic: str) -> None:
        """A transaction is open from the first record on."""
        if topic == self._parts.stores.offsets.topic:  # its start would wait for this very transaction
            raise TaskFailed(f"{_OWN_TOPIC}; let it write to another topic than {topic}")
        await self._open()

    async def _open(self) -> None:
        if self._opened_at is None:
            await self.producer.begin_transaction()
            self._opened_at = time.monotonic()

    async def took(self, record: SourceRecord, waiter: "asyncio.Future[Any] | None") -> None:
        """It is stored with the others, and the transaction ends here if the source wants it to."""
        if waiter is not None:
            self._count += 1
            waiter.add_done_callback(_looked_at)
        self._offsets.add(record)
        if self._boundaries is not None:
            await self._as_asked(self._boundaries.due(record))

    async def batch_over(self) -> None:
        """The transaction ends here, or when its time has come, or when the source says so."""
        if self._boundaries is not None:
            await self._as_asked(self._boundaries.due())
        elif self._boundary == "POLL" or time.monotonic() - self._committed_at >= self._interval_s:
            await self._commit()

    async def _as_asked(self, wish: str | None) -> None:
        if wish == "abort" and self._opened_at is not None:
            await self.producer.abort_transaction()
            self._opened_at, self._count = None, 0
        if wish is not None:
            await self._commit()  # after an abort too: what the source has done with is not to come again

    async def pause(self) -> None:
        """What is open would expire while nothing goes on; a source that sets its own boundaries has to know."""
        if self._boundaries is None:
            await self._commit()

    async def end(self, *, failed: bool) -> None:
        """What came after the last boundary counts too, unless something went wrong."""
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
        """Whether the transaction was open for longer than its timeout."""
        limit_s = self.producer.options.transaction_timeout_ms / 1000
        return self._opened_at is not None and time.monotonic() - self._opened_at >= limit_s


def _looked_at(waiter: "asyncio.Future[Any]") -> None:
    """A record that is not written fails the commit, which says so."""
    if not waiter.cancelled():
        waiter.exception()


@contextlib.asynccontextmanager
async def transactional(parts: TaskContext, source: Source, transactional_id: str) -> AsyncIterator[Transactional]:
    """Open a run's delivery. The previous owner of the id is fenced; the offsets are the committed ones.

    Raises:
        TurnOver: another worker has taken over.
        BuswayError: the brokers cannot be reached, or refuse the id.
    """
    options = {"client_id": f"connector-producer-{parts.name}-0", **producer_options(parts.config)}
    await parts.confirm_turn()
    async with AsyncExitStack() as stack:
        # Nothing is behind a record that was given up, as its transaction is aborted with it; so it need not be tried for longer.
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
