"""The producer that users see.

What lives here: `Producer`: partition, size and buffer checks, then the accumulator. What does not: sending (`sender`), transactions
(`transactions`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from busway.cluster.client import Addresses, ClusterClient
from busway.errors import InvalidTransactionState, NotRunning
from busway.net.clock import REAL_TIME
from busway.net.machine import OS, current_machine
from busway.options import ProducerOptions, options_from
from busway.producer.accumulator import Accumulator, Partition, Together
from busway.producer.checks import checked_timestamp, size_of
from busway.producer.partitioner import Partitioner
from busway.producer.sender import Sender
from busway.producer.transactions import Transactions
from busway.types import GroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition
from busway_protocol.records.builder import NO_HEADERS, Headers, encode_headers

if TYPE_CHECKING:
    from busway.consumer.consumer import Consumer

logger = logging.getLogger("busway.producer")

KeyValueHeaders: TypeAlias = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A record for `Producer.send_many`."""


class Producer:
    """Sends records, batched, in order, each once.

    Args:
        bootstrap_servers: `host:port`, several with commas or as a list.
        client_id: told to the brokers.
        options: see `ProducerOptions`, which are also accepted as keyword arguments.
    """

    def __init__(
        self, bootstrap_servers: Addresses = "localhost:9092", *, client_id: str = "busway", **options: Any
    ) -> None:
        self.options = options_from(ProducerOptions, options)
        self._cluster = ClusterClient(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_s=self.options.request_timeout_ms / 1000,
            create_topics=True,
        )
        self._accumulator = Accumulator(
            batch_size=self.options.batch_size,
            linger_s=self.options.linger_ms / 1000,
            compression=self.options.compression_type,
            transactional=self.options.transactional_id is not None,
        )
        self._sender = Sender(self._cluster, self._accumulator, self.options)
        self._transactions = self._sender.transactions
        self._task: asyncio.Task[None] | None = None
        self._placing = Partitioner(self._cluster.metadata, self.options)
        self._wall_ms = OS.wall_ms

    async def start(self) -> None:
        """Connect, and take a producer id. With a transactional_id: fence the producer that had it before, abort what that left open.

        Raises:
            ConnectionFailed: no broker can be reached.
            ProducerFenced, TransactionFailed: the transactional id is refused.
        """
        self._wall_ms = current_machine().wall_ms
        await self._cluster.start()
        try:
            if self.options.enable_idempotence:
                await self._sender.identify()
        except BaseException:
            await self._cluster.close()
            raise
        self._task = asyncio.get_running_loop().create_task(self._sender.run(), name="busway-producer")

    async def stop(self, timeout_s: float | None = None) -> None:
        """Send what waits, then disconnect. A transaction that is open is aborted, one that is being committed is seen through.

        Args:
            timeout_s: what is not acknowledged by then fails, and a line in the log says how many records of which partitions; None
                waits until everything is acknowledged or has failed, which takes delivery_timeout_ms at most.
        """
        if self._task is None:
            return
        try:
            if self._transactions is not None:
                await self._transactions.close(timeout_s)
            if not await self._flushed(timeout_s):
                left = ", ".join(f"{topic}-{number}: {count}" for (topic, number), count in self._sender.left().items())
                logger.warning("the producer stops, records that were not acknowledged: %s", left)
        finally:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])
            if self._transactions is not None:
                await self._transactions.cut()
            await self._sender.stop()
            await self._cluster.close()

    def cut(self) -> None:
        """Drop the connections, now and for good, as when the process is killed; `abort` ends the tasks as well."""
        self._cluster.abort()

    async def abort(self) -> None:
        """End at once, as when the process is killed: nothing more is sent, and what was not acknowledged fails.

        All that happens before anything else runs; this then returns when the tasks have ended.
        """
        task, self._task = self._task, None
        self._cluster.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._transactions is not None:
            await self._transactions.cut()
        await self._sender.stop()

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Hand a record over; the future is done when it is acknowledged.

        Waits only while the topic is not known yet or buffer_memory is used up.

        Raises:
            TypeError, ValueError: key, value, headers or timestamp are no such things, or the partition is not there.
            MessageTooLarge: the record is larger than max_request_size.
            BrokerError: the topic cannot be had.
            NotRunning: the producer was not started.
            InvalidTransactionState: the producer is transactional, and no transaction is open.
            TransactionAbortable, ProducerFenced, TransactionFailed: the transaction has failed.
        """
        waiter: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        await self._hand_over(topic, value, key, partition, timestamp_ms, headers, waiter)
        return waiter

    async def send_among(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """As `send`, for who need not know where a record was put: one future stands for all such records of a batch.

        It costs a fraction of what one for each record costs. It is done when the batch is acknowledged, with where the first of them in
        it was put; nobody should cancel it.

        Raises:
            As `send`.
        """
        where, stamp = await self._hand_over(topic, value, key, partition, timestamp_ms, headers, None)
        common: asyncio.Future[RecordMetadata] = self._accumulator.common(
            where, stamp, asyncio.get_running_loop().create_future
        )
        return common

    async def _hand_over(  # noqa: PLR0917 - once for every record: keyword arguments would cost a tenth of it
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        waiter: "asyncio.Future[RecordMetadata] | None",
    ) -> tuple[Partition, int]:
        transaction = self._check_running()
        size = self._size(topic, value, key, headers)
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        accumulator = self._accumulator
        while accumulator.buffered + size > self.options.buffer_memory and accumulator.buffered:
            await self._space(topic)
        timestamp_ms = self._wall_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        where = (
            topic,
            self._placing.choose(topic, key, size) if partition is None else self._placing.given(topic, partition),
        )
        encoded = encode_headers(headers) if headers else NO_HEADERS
        if self._transactions is not None:
            self._transactions.require(transaction)
        now = REAL_TIME.now_s()
        if accumulator.append(where, now, timestamp_ms, key, value, encoded, size, waiter):
            self._sender.wake()
        return where, timestamp_ms

    async def send_many(
        self,
        topic: str,
        records: Iterable[KeyValueHeaders],
        *,
        partition: int,
        timestamp_ms: int | None = None,
        linger: bool = True,
    ) -> "list[asyncio.Future[RecordMetadata]]":
        """Hand many records of one partition over, in their order, for a fraction of the time that `send` takes for each.

        Waits as `send` does. A record is taken from `records` when there is room, and is handed over before anything else can run.

        Args:
            records: key, value and headers of each; the same tuple of headers as before is not encoded again.
            linger: whether a batch that is not full waits for more, as in `send`.

        Returns:
            A future for each batch that they are in, done when that is acknowledged, with where the first of them in it was put.

        Raises:
            As `send`, and what `records` raises; those before are handed over.
        """
        transaction = self._check_running()
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        loop, accumulator = asyncio.get_running_loop(), self._accumulator
        timestamp_ms = self._wall_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        where = topic, self._placing.given(topic, partition)
        together = Together(loop.create_future)
        latest: Headers = ()
        encoded = NO_HEADERS
        source = iter(records)
        while True:
            while accumulator.buffered >= self.options.buffer_memory:
                await self._space(topic)
            if (found := next(source, None)) is None:
                break
            key, value, headers = found
            size = self._size(topic, value, key, headers)
            if headers is not latest:
                latest, encoded = headers, encode_headers(headers)
            if self._transactions is not None:
                self._transactions.require(transaction)
            if accumulator.append(where, REAL_TIME.now_s(), timestamp_ms, key, value, encoded, size, together):
                self._sender.wake()
        if not linger and together.batch is not None:
            together.batch.due = together.batch.created
            self._sender.wake()
        return together.futures

    async def check(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Whether `send` would take the record, which is not sent.

        Raises:
            As `send`, but for what is about transactions.
        """
        self._size(topic, value, key, headers)
        if timestamp_ms is not None:
            checked_timestamp(timestamp_ms)
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        if partition is not None:
            self._placing.given(topic, partition)

    async def choose(self, topic: str, key: bytes | None, size: int) -> int:
        """The partition that `send` would choose for a record of that size.

        Raises:
            BrokerError: the topic cannot be had.
        """
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        return self._placing.choose(topic, key, size)

    def _check_running(self) -> int:
        """The number of the open transaction, 0 for a producer that has none."""
        if self._task is None or self._task.done():
            raise NotRunning("the producer is not running; use `async with Producer(...)` or await start()")
        return 0 if self._transactions is None else self._transactions.require_open()

    def _size(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> int:
        return size_of(topic, value, key, headers, self.options.max_request_size)

    async def _ensure(self, topic: str) -> None:
        await self._cluster.ensure_topics([topic], self.options.metadata_timeout_ms / 1000)

    async def _space(self, topic: str) -> None:
        """Wait until a batch is done, and look whether the topic is still there; meanwhile no batch waits to become full."""
        self._accumulator.flushing += 1
        self._sender.wake()
        try:
            await self._sender.space()
        finally:
            self._accumulator.flushing -= 1
        await self._ensure(topic)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        Raises:
            DeliveryFailed: it was not acknowledged in time.
            BrokerError: the broker refused it.
        """
        waiter = await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await waiter

    async def flush(self) -> None:
        """Return when everything handed over so far is acknowledged or has failed."""
        await self._flushed(None)

    async def _flushed(self, timeout_s: float | None) -> bool:
        waiters = [waiter for batch in self._accumulator.all_batches() for _, _, waiter in batch.waiters]
        if not waiters:
            return True
        self._accumulator.flushing += 1
        self._sender.wake()
        try:
            _, late = await REAL_TIME.wait(waiters, timeout=timeout_s)
        finally:
            self._accumulator.flushing -= 1
        return not late

    # Transactions

    @contextlib.asynccontextmanager
    async def transaction(self, consumer: "Consumer | None" = None) -> AsyncIterator[None]:
        """A transaction: committed at the end of the block, aborted when the block ends with an exception or is cancelled.

        Records that were sent in the block need not be awaited: one that is not written fails the commit, and the transaction is aborted.
        A producer has one transaction at a time, which any number of tasks may send in.

        Args:
            consumer: everything that it hands out in the block is committed with the transaction, in the name of the member that it was
                handed to (KIP-447). When the transaction is aborted, the consumer goes back: to where it was, in partitions that it has
                kept without a break; to the committed offset, in those that went away and came back. It needs a group,
                enable_auto_commit=False and isolation_level="read_committed".

        Raises:
            TransactionAbortable: it was aborted; do its work again in another one.
            TransactionInDoubt: the commit was not answered within delivery_timeout_ms.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: another transaction is open, the producer has no transactional_id, or the consumer has handed out
                records before the block that are not committed, or whose commit is under way.
            ValueError: the consumer's options do not fit.
        """
        transactions = self._transactional()
        number = await self.begin_transaction(consumer)
        try:
            yield
            if transactions.is_open(number):
                await transactions.end(commit=True)
        except BaseException as problem:
            if transactions.is_open(number):
                await transactions.abort_after(problem)
            raise

    async def begin_transaction(self, consumer: "Consumer | None" = None) -> int:
        """Begin a transaction; `transaction()` does so and ends it, too.

        Arguments and errors are those of `transaction`. Returns the number of the transaction.
        """
        transactions = self._transactional()
        return await transactions.begin(None if consumer is None else consumer.transaction_input())

    async def commit_transaction(self) -> None:
        """Wait until everything sent is acknowledged, then commit. Whoever is cancelled meanwhile is so when the transaction has ended.

        Raises:
            TransactionAbortable: something was not written; `abort_transaction()` is what is left.
            TransactionInDoubt: not answered within delivery_timeout_ms; call it again to learn the outcome.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: no transaction is open.
        """
        await self._transactional().end(commit=True)

    async def abort_transaction(self) -> None:
        """Take back everything sent since the transaction was begun; records that are not acknowledged fail.

        Raises:
            ProducerFenced, TransactionFailed: the producer cannot go on.
            BrokerError, ConnectionFailed, RequestTimedOut: not answered within delivery_timeout_ms; may be called again.
            InvalidTransactionState: no transaction is open.
        """
        await self._transactional().end(commit=False)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Have offsets of a group committed if and when the transaction is.

        Args:
            offsets: of the next record to read, for each partition.
            group: `Consumer.group_metadata()` of who has read them, with enable_auto_commit=False; a member that its group has replaced
                commits nothing (KIP-447).

        `transaction(consumer)` does this by itself, and goes back after an abort.

        Raises:
            TransactionAbortable: they are refused: the group has moved on, the consumer has given partitions up since it has handed their
                records out, or it is no member now. Nothing of the transaction can be committed then.
            ProducerFenced, TransactionFailed: the producer cannot go on.
            InvalidTransactionState: no transaction is open, or a `commit()` of these partitions is under way.
            ValueError: the consumer commits by itself (enable_auto_commit).
        """
        found = {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        await self._transactional().send_offsets(found, group)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise InvalidTransactionState("this producer has no transactional_id; give it one to send in transactions")
        if self._task is None or self._task.done():
            raise NotRunning("the producer is not running; use `async with Producer(...)` or await start()")
        return self._transactions

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        await self._cluster.ensure_topics([topic])
        return self._placing.count(topic)

    async def partition_for(self, topic: str, key: bytes) -> int:
        """The partition that a record with this key goes to."""
        await self._cluster.ensure_topics([topic])
        return self._placing.choose(topic, key, len(key))
