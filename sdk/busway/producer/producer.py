"""The public producer.

Not here: batches (`accumulator`), sending (`sender`), transactions (`transactions`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from busway.cluster.client import ClusterClient, MetadataRecovery
from busway.errors import InvalidTransactionState, NotRunning
from busway.net.clock import REAL_TIME
from busway.net.machine import OS, current_machine
from busway.options import ProducerOptions, options_from
from busway.producer.accumulator import Accumulator, Partition, SharedFutures
from busway.producer.checks import checked_timestamp, size_of
from busway.producer.partitioner import Partitioner
from busway.producer.sender import Sender
from busway.producer.transactions import Transactions
from busway.security.choosing import taken
from busway.types import Addresses, GroupMetadata, OffsetAndMetadata, RecordMetadata, SendOptions, TopicPartition
from busway_protocol.records.builder import NO_HEADERS, Headers, encode_headers

if TYPE_CHECKING:
    from busway.consumer.consumer import Consumer

logger: logging.Logger = logging.getLogger("busway.producer")

KeyValueHeaders: TypeAlias = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Producer:
    """Producer of records, in batches, in order, each once.

    Args:
        bootstrap_servers: `host:port`, several with commas or as a list.
        options: the fields of `ProducerOptions` and of `SecurityOptions`, or `security`, such an object.
    """

    def __init__(
        self, bootstrap_servers: Addresses = "localhost:9092", *, client_id: str = "busway", **options: Any
    ) -> None:
        security, options = taken(options)
        self.options: ProducerOptions = options_from(ProducerOptions, options)
        timeout_s = self.options.request_timeout_ms / 1000
        self._cluster = ClusterClient(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_s=timeout_s,
            create_topics=True,
            security=security,
            recovery=MetadataRecovery.of(self.options),
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
        """Connect and get a producer id.

        With a transactional_id: fence its previous producer and abort that one's open transaction.

        Raises:
            ConnectionFailed: no broker is reachable, or it refuses this client (AuthenticationFailed).
            ProducerFenced, TransactionFailed: the transactional id is refused.
        """
        self._wall_ms = current_machine().wall_ms
        await self._cluster.start()
        try:
            if self.options.enable_idempotence:
                await self._sender.identify()
        except BaseException:  # cancelled too: a producer that did not start holds no connection
            await self._cluster.close()
            raise
        self._task = asyncio.get_running_loop().create_task(self._sender.run(), name="busway-producer")

    async def stop(self, timeout_s: float | None = None) -> None:
        """Send what is buffered, then disconnect.

        An open transaction is aborted; an end in progress is awaited.

        Args:
            timeout_s: what is unacknowledged by then fails and is counted by partition in the log; None waits until
                everything is settled, at most delivery_timeout_ms.
        """
        if self._task is None:
            return
        try:
            if self._transactions is not None:
                await self._transactions.close(timeout_s)
            if not await self._flushed(timeout_s):
                left = ", ".join(f"{topic}-{index}: {count}" for (topic, index), count in self._sender.left().items())
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
        """Drop the connections permanently, as if the process were killed; `abort` also ends the tasks."""
        self._cluster.abort()

    async def abort(self) -> None:
        """Stop as if the process were killed: nothing is sent, unacknowledged records fail.

        All this happens before the first await; the call returns when the tasks have ended.
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
        """Send a record; the future is done when it is acknowledged.

        Waits only while the topic is unknown or buffer_memory is used up.

        Raises:
            TypeError, ValueError: key, value, headers or timestamp are invalid, or the partition does not exist.
            MessageTooLarge: the record exceeds max_request_size.
            BrokerError: the topic is not available.
            NotRunning: the producer was not started.
            InvalidTransactionState: the producer is transactional, and no transaction is open.
            TransactionAbortable, ProducerFenced, TransactionFailed: the transaction has failed.
        """
        waiter: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        await self._append(topic, value, key, partition, timestamp_ms, headers, waiter)
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
        """Send a record as `send`, with one future for all such records of a batch.

        Far cheaper than a future for each. It is done when the batch is acknowledged, with the metadata of the first of
        them in it; do not cancel it. Errors as in `send`.
        """
        where, stamp = await self._append(topic, value, key, partition, timestamp_ms, headers, None)
        common: asyncio.Future[RecordMetadata] = self._accumulator.common(
            where, stamp, asyncio.get_running_loop().create_future
        )
        return common

    async def _append(  # noqa: PLR0917 - called for every record: keyword arguments would cost a tenth of its time
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
        """Send many records to one partition, in order, far cheaper than by `send`.

        Waits and fails as `send` does; earlier records are sent even if `records` raises. A record is taken when the
        buffer has room, and appended without an await in between.

        Args:
            records: (key, value, headers); the same headers tuple as before is not encoded again.
            linger: whether the last batch waits for more records, as in `send`.

        Returns:
            A future for each batch, as of `send_among`.
        """
        transaction = self._check_running()
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        loop, accumulator = asyncio.get_running_loop(), self._accumulator
        timestamp_ms = self._wall_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        where = topic, self._placing.given(topic, partition)
        together = SharedFutures(loop.create_future)
        latest: Headers = ()
        encoded = NO_HEADERS
        source = iter(records)
        while True:
            while accumulator.buffered >= self.options.buffer_memory:
                await self._space(topic)
            if (record := next(source, None)) is None:
                break
            key, value, headers = record
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
        """Check whether `send` would accept the record, without sending it.

        Errors as in `send`, except for transactions.
        """
        self._size(topic, value, key, headers)
        if timestamp_ms is not None:
            checked_timestamp(timestamp_ms)
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        if partition is not None:
            self._placing.given(topic, partition)

    async def choose(self, topic: str, key: bytes | None, size: int) -> int:
        """Return the partition that `send` would choose.

        Raises:
            BrokerError: the topic is not available.
        """
        if topic not in self._cluster.metadata.topics:
            await self._ensure(topic)
        return self._placing.choose(topic, key, size)

    def _check_running(self) -> int:
        if self._task is None or self._task.done():
            raise NotRunning("the producer is not running; use `async with Producer(...)` or await start()")
        return 0 if self._transactions is None else self._transactions.require_open()

    def _size(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> int:
        return size_of(topic, value, key, headers, self.options.max_request_size)

    async def _ensure(self, topic: str) -> None:
        await self._cluster.ensure_topics([topic], self.options.metadata_timeout_ms / 1000)

    async def _space(self, topic: str) -> None:
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
        **options: Unpack[SendOptions],
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement.

        Raises:
            DeliveryFailed: it was not acknowledged in time.
            BrokerError: the broker refused it.
        """
        return await (await self.send(topic, value, key, **options))

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged or has failed."""
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
        """Run the block in a transaction.

        It is committed at the end, and aborted after an exception or cancellation. Records sent in the block need not
        be awaited: one that is not written fails the commit, and the transaction is aborted. A producer has one
        transaction at a time, in which any number of tasks may send.

        Args:
            consumer: what it hands out in the block is committed with the transaction, as the member that received it
                (KIP-447). After an abort the consumer seeks back, in partitions kept without a break; others, which were
                revoked and assigned again, continue at the committed offset. It needs a group, enable_auto_commit=False and
                isolation_level="read_committed".

        Raises:
            TransactionAbortable: it was aborted; repeat its work in another one.
            TransactionInDoubt: no response to the commit within delivery_timeout_ms.
            ProducerFenced, TransactionFailed: the producer cannot continue.
            InvalidTransactionState: another transaction is open, the producer has no transactional_id, or the consumer
                has uncommitted records from before the block, or a commit in progress.
            ValueError: the consumer's options do not fit.
        """
        transactions = self._transactional()
        transaction_number = await self.begin_transaction(consumer)
        try:
            yield
            if transactions.is_open(transaction_number):
                await transactions.end(commit=True)
        except BaseException as problem:
            if transactions.is_open(transaction_number):
                await transactions.abort_after(problem)
            raise

    async def begin_transaction(self, consumer: "Consumer | None" = None) -> int:
        """Begin a transaction without ending it, and return its number. Arguments and errors as in `transaction`."""
        transactions = self._transactional()
        return await transactions.begin(None if consumer is None else consumer.transaction_input())

    async def commit_transaction(self) -> None:
        """Wait until everything sent is acknowledged, then commit.

        A cancellation takes effect when the transaction has ended.

        Raises:
            TransactionAbortable: something was not written; call `abort_transaction()`.
            TransactionInDoubt: no response within delivery_timeout_ms; call it again to learn the outcome.
            ProducerFenced, TransactionFailed: the producer cannot continue.
            InvalidTransactionState: no transaction is open.
        """
        await self._transactional().end(commit=True)

    async def abort_transaction(self) -> None:
        """Abort the transaction; unacknowledged records fail.

        Raises:
            ProducerFenced, TransactionFailed: the producer cannot continue.
            BrokerError, ConnectionFailed, RequestTimedOut: no response within delivery_timeout_ms; may be called again.
            InvalidTransactionState: no transaction is open.
        """
        await self._transactional().end(commit=False)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction, as `transaction(consumer)` does automatically.

        Args:
            offsets: of the next record to read.
            group: `Consumer.group_metadata()` of the reader, with enable_auto_commit=False; a replaced member commits
                nothing (KIP-447).

        Raises:
            TransactionAbortable: they are refused: the group has rebalanced, partitions were revoked since their
                records were handed out, or the consumer is not a member. The transaction cannot be committed.
            ProducerFenced, TransactionFailed: the producer cannot continue.
            InvalidTransactionState: no transaction is open, or a `commit()` of these partitions is in progress.
            ValueError: the consumer commits automatically (enable_auto_commit).
        """
        next_offsets = {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        await self._transactional().send_offsets(next_offsets, group)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise InvalidTransactionState("this producer has no transactional_id; give it one to send in transactions")
        if self._task is None or self._task.done():
            raise NotRunning("the producer is not running; use `async with Producer(...)` or await start()")
        return self._transactions

    async def partitions_for(self, topic: str) -> int:
        """Return a topic's number of partitions."""
        await self._cluster.ensure_topics([topic])
        return self._placing.count(topic)

    async def partition_for(self, topic: str, key: bytes) -> int:
        """Return the partition of a key."""
        await self._cluster.ensure_topics([topic])
        return self._placing.choose(topic, key, len(key))
