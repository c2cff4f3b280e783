"""Handlers' output, committed exactly once in transactions with the offsets of their records.

Here: one transaction after another, retries after an abort, a new producer after a fatal error.
Not here: a call's output (`handler_output`), partitions and lanes (`worker`), requests (`busway.producer`).

While one transaction commits, handlers continue and their output is queued for the next. That begins when no record is
left to be handled, after `INTERVAL_S` at the latest, and is open only while its records are sent: readers of committed
records wait for no handler, and handlers for no commit.

Output enters transactions as a whole, in the order of the calls' returns: records, table rows, and the offsets of the
handled records under the member's current id and generation (KIP-447). A fenced member commits nothing, so a process
that was frozen has no visible writes.

- Aborted, with its partitions still assigned: the same output enters the next transaction; no handler is called again.
- Refused for good: transactions are bisected until the output at fault is alone; its record is dead-lettered.
- Producer fenced or failed: all partitions restart from their committed offsets, with a new producer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from busway.app.extending.hooks import ExtensionFailed, Hooks
from busway.app.handling.handler_output import HandlerOutput, firsts
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.model.outcomes import Outcomes
from busway.app.model.retry import HandlerFailed, refusal_of
from busway.errors import (
    BrokerError,
    BuswayError,
    ConnectionFailed,
    MessageTooLarge,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionInDoubt,
)
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine
from busway.net.retry import Backoff
from busway.producer.producer import Producer
from busway.types import GroupMetadata, OffsetAndMetadata, ProducerRecord, TopicPartition
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.app")

INTERVAL_S: Final = 0.1
"""Maximum seconds that output waits for more before it is committed."""
_LOOK_S: Final = 0.005
"""Interval of checking whether records are left to be handled."""
RECORDS_MAX: Final = 10_000
"""Records handled and sent in one transaction; at this many it is committed without waiting."""
BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes sent in one transaction, except for the rest of the call that exceeds them."""
WAITING_BYTES_MAX: Final = 2 * BYTES_MAX
WAITING_MAX: Final = 2 * RECORDS_MAX
"""Above these bounds, handlers wait for a commit."""


class OutOfGroup(TransactionAbortable):
    """The group does not know this member at the moment, so it cannot commit."""


class Host(Protocol):
    """Owner of the partitions; see `Worker`."""

    def metadata(self) -> GroupMetadata:
        """Return the member's id and generation."""

    def position(self, assigned: PartitionOffsets) -> int | None:
        """Return the consumer's position, or its position when the revocation began."""

    def make_room(self, partition: PartitionOffsets) -> None:
        """Resume a partition after one of its records was handled."""

    def is_idle(self) -> bool:
        """Return whether no record is queued for a handler or running."""

    def is_behind(self) -> Sequence[PartitionOffsets]:
        """Return finished partitions whose offset can move past markers and aborted records."""

    async def committed(
        self, outputs: Sequence[HandlerOutput], offsets: Mapping[PartitionOffsets, OffsetAndMetadata]
    ) -> None:
        """Record a committed transaction."""

    async def release_partitions(self) -> Mapping[TopicPartition, int]:
        """Stop handling all exactly_once partitions; return the first offset of each."""

    async def restart_partitions(self, firsts: Mapping[TopicPartition, int]) -> None:
        """Restart those still assigned, from their committed offsets."""


class Transactor:
    """Commits handlers' output in transactions.

    Args:
        make_producer: makes a producer, not started; always of one transactional id, so each fences the one before.
        interval_s: how long output waits for more, at most `INTERVAL_S`.
    """

    def __init__(self, make_producer: Callable[[], Producer], host: Host, hooks: Hooks, interval_s: float) -> None:
        self._make_producer = make_producer
        self._host = host
        self._hooks = hooks
        self._interval_s = min(interval_s, INTERVAL_S)
        self._idle_s = interval_s
        self._queue: deque[HandlerOutput] = deque()
        self._in_flight: list[HandlerOutput] = []
        self._waiting = self._waiting_bytes = 0
        self._batch_limit = RECORDS_MAX
        self._has_work = asyncio.Event()
        self._batch_due = asyncio.Event()
        self._progress = asyncio.Event()
        self._settling = 0
        self._stopped = False
        self._refused: dict[tuple[TopicPartition, int], BuswayError] = {}
        self._pause = Backoff(current_machine().chance.random)
        self.outcomes: Outcomes = Outcomes()
        self.producer: Producer = make_producer()

    async def start(self) -> None:
        await self.producer.start()

    async def stop(self, timeout_s: float) -> None:
        self._drop_all()
        await self.producer.stop(timeout_s)

    # Output of handlers

    def add(self, output: HandlerOutput) -> None:
        for item in output.items:
            item.completed = True
        if output.partition.dropped:
            output.settle(committed=False)
            return
        self._queue.append(output)
        self._waiting += len(output.items) + len(output.records)
        self._waiting_bytes += output.size
        self._has_work.set()
        if output.partition.paused:
            self._host.make_room(output.partition)
        if self._waiting >= RECORDS_MAX or self._waiting_bytes >= BYTES_MAX:
            self._batch_due.set()

    async def room(self) -> None:
        while not self._stopped and (self._waiting >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX):
            self._progress.clear()
            await self._progress.wait()

    def refused(self, item: InFlightRecord) -> BuswayError | None:
        if not self._refused:
            return None
        record = item.record
        return self._refused.get((TopicPartition(record.topic, record.partition), record.offset))

    # Revoked partitions

    async def settle(self, partitions: Collection[PartitionOffsets], timeout_s: float) -> None:
        """Wait until nothing of these partitions is queued; drop the rest after the timeout."""
        chosen = set(partitions)
        self._settling += 1
        self._batch_due.set()
        self._has_work.set()
        try:
            async with REAL_TIME.timeout(timeout_s):
                while not self._stopped and any(
                    output.partition in chosen for output in (*self._queue, *self._in_flight)
                ):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            logger.warning("what was handled was not committed within %g s, and is handled again", timeout_s)
        finally:
            self._settling -= 1
            self.drop(partitions)

    def drop(self, partitions: Collection[PartitionOffsets]) -> None:
        for assigned in partitions:
            assigned.dropped = True
        if self._refused:
            gone_too = {assigned.partition for assigned in partitions}
            self._refused = {where: why for where, why in self._refused.items() if where[0] not in gone_too}
        gone = [output for output in self._queue if output.partition.dropped]
        if gone:
            self._queue = deque(output for output in self._queue if not output.partition.dropped)
            self._drop(gone)

    def _drop(self, outputs: Iterable[HandlerOutput]) -> None:
        for output in outputs:
            self._left(output)
            output.settle(committed=False)
        self._progress.set()

    def _drop_all(self) -> None:
        outputs, self._in_flight = [*self._in_flight, *self._queue], []
        self._queue.clear()
        self._drop(outputs)

    def _left(self, output: HandlerOutput) -> None:
        self._waiting -= len(output.items) + len(output.records)
        self._waiting_bytes -= output.size

    # Transactions

    async def run(self) -> None:
        """Commit output until cancelled; `TransactionFailed` if no producer may.

        `HandlerFailed` if a record is refused even as a dead letter.
        """
        try:
            await self._run()
        finally:
            self._stopped = True
            self._progress.set()

    async def _run(self) -> None:
        while True:
            behind = await self._until_batch_due()
            self._in_flight = self._next()
            try:
                await self._transact(self._in_flight, behind)
            except (HandlerFailed, ExtensionFailed):
                raise
            except (TransactionAbortable, BrokerError, MessageTooLarge, ConnectionFailed, RequestTimedOut) as problem:
                await self._aborted(problem)
            except BuswayError as problem:
                await self._restart_partitions(problem)

    async def _until_batch_due(self) -> Sequence[PartitionOffsets]:
        """Wait until a transaction is due; return finished partitions if only their offsets must move."""
        while not self._queue:
            self._has_work.clear()
            try:
                async with REAL_TIME.timeout(self._idle_s):
                    await self._has_work.wait()
            except TimeoutError:
                if not self._queue and (behind := self._host.is_behind()):
                    return behind
        until = REAL_TIME.now_s() + self._interval_s
        while not self._is_batch_due() and (left_s := until - REAL_TIME.now_s()) > 0:
            try:
                async with REAL_TIME.timeout(min(left_s, _LOOK_S)):
                    await self._batch_due.wait()
            except TimeoutError:
                continue
        return ()

    def _is_batch_due(self) -> bool:
        if self._settling or self._waiting >= RECORDS_MAX or self._waiting_bytes >= BYTES_MAX:
            return True
        self._batch_due.clear()
        return self._host.is_idle()

    def _next(self) -> list[HandlerOutput]:
        outputs: list[HandlerOutput] = []
        records = size = 0
        while self._queue and len(outputs) < self._batch_limit and records < RECORDS_MAX and size < BYTES_MAX:
            outputs.append(output := self._queue.popleft())
            records += len(output.items) + len(output.records)
            size += output.size
        return outputs

    async def _transact(self, outputs: list[HandlerOutput], behind: Sequence[PartitionOffsets]) -> None:
        producer = self.producer
        await producer.begin_transaction()
        await self._send(producer, outputs)
        first = firsts(outputs)
        if self._hooks.stepped:
            await producer.flush()
            await self._hooks.reached_each("after-send", first)
        offsets = await self._seal(producer, outputs, behind)
        await self._hooks.reached_each("before-commit", first)
        await self._commit(producer)
        await self._done(outputs, offsets)
        await self._hooks.reached_each("after-commit", first)

    async def _send(self, producer: Producer, outputs: Iterable[HandlerOutput]) -> None:
        groups: dict[tuple[str, int], list[ProducerRecord]] = {}
        for output in outputs:
            for record in output.records:
                partition = record.partition
                if partition is None:
                    partition = await producer.choose(record.topic, record.key, len(record.value or b""))
                groups.setdefault((record.topic, partition), []).append(record)
        for (topic, partition), records in groups.items():
            if any(record.timestamp_ms is not None for record in records):
                for record in records:
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=record.headers,
                    )
            else:
                plain = [(record.key, record.value, tuple(record.headers)) for record in records]
                await producer.send_many(topic, plain, partition=partition, linger=False)

    async def _seal(
        self, producer: Producer, outputs: Sequence[HandlerOutput], behind: Sequence[PartitionOffsets]
    ) -> dict[PartitionOffsets, OffsetAndMetadata]:
        if any(output.partition.dropped for output in outputs):
            raise OutOfGroup("partitions have gone while their records were being sent")
        member = self._host.metadata()
        if member.generation < 0 or not member.member_id:
            raise OutOfGroup(f"this instance is not in group {member.group_id} at this moment")
        finished: dict[PartitionOffsets, list[int]] = {assigned: [] for assigned in behind if not assigned.dropped}
        for output in outputs:
            offsets = finished.setdefault(output.partition, [])
            offsets += [item.record.offset for item in output.items if item.done is output.partition.done]
        committable = {
            assigned: at
            for assigned, offsets in finished.items()
            if (at := assigned.committable_with(offsets, self._host.position(assigned))) is not None
        }
        if outputs and not committable:
            raise OutOfGroup("no offset is known yet that would show whether this instance may write")
        try:
            await producer.send_offsets_to_transaction(
                {assigned.partition: at for assigned, at in committable.items()}, member
            )
        except TransactionAbortable as problem:
            if problem.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            longest = max(committable, key=lambda assigned: len(committable[assigned].metadata))
            raise longest.too_much_ahead(
                committable[longest].offset, "offset.metadata.max.bytes of the brokers allows"
            ) from problem
        return committable

    async def _commit(self, producer: Producer) -> None:
        while True:
            try:
                await producer.commit_transaction()
            except TransactionInDoubt as problem:
                self.outcomes.failed(problem)
                logger.warning("%s", problem)
            else:
                return

    async def _done(
        self, outputs: Sequence[HandlerOutput], offsets: Mapping[PartitionOffsets, OffsetAndMetadata]
    ) -> None:
        self._in_flight = []
        self._batch_limit = min(self._batch_limit * 2, RECORDS_MAX)
        self._pause.reset()
        self.outcomes.committed += 1
        self.outcomes.problem = None
        for output in outputs:
            self._left(output)
            output.settle(committed=True)
        if self._refused:
            for output in outputs:
                for item in output.items:
                    self._refused.pop((output.partition.partition, item.record.offset), None)
        await self._host.committed(outputs, offsets)
        self._progress.set()

    # Failures

    async def _aborted(self, problem: BuswayError) -> None:
        try:
            await self.producer.abort_transaction()
        except (BrokerError, ConnectionFailed, RequestTimedOut) as unanswered:
            logger.warning("an abort was not answered, the next transaction begins with it: %s", unanswered)
        except BuswayError as worse:
            return await self._restart_partitions(worse)
        self.outcomes.aborted += 1
        self.outcomes.failed(problem)
        outputs, self._in_flight = self._in_flight, []
        refusal = refusal_of(problem)
        if refusal is not None and len(outputs) == 1 and not outputs[0].partition.dropped:
            self._refuse(outputs[0], refusal)
            self._queue.extendleft(outputs)
            return await self._restart_partitions(refusal)
        if refusal is not None:
            self._batch_limit = max(1, len(outputs) // 2)
        logger.log(
            logging.INFO if isinstance(problem, OutOfGroup) else logging.WARNING,
            "a transaction of %d records was aborted, and is made again: %s",
            sum(len(output.items) for output in outputs),
            problem,
        )
        self._queue.extendleft(output for output in reversed(outputs) if not output.partition.dropped)
        self._drop(output for output in outputs if output.partition.dropped)
        if refusal is None:
            await REAL_TIME.sleep(self._pause.next())
        return None

    def _refuse(self, output: HandlerOutput, problem: BuswayError) -> None:
        for item in output.items:
            where = output.partition.partition, item.record.offset
            if where in self._refused:
                raise HandlerFailed(f"{item.where} cannot even be put among the dead letters: {problem}") from problem
            self._refused[where] = problem

    async def _restart_partitions(self, problem: BuswayError) -> None:
        logger.warning("all partitions restart from their committed offsets, with a new producer: %s", problem)
        self.outcomes.renewed += 1
        self.outcomes.failed(problem)
        self._drop_all()
        firsts = await self._host.release_partitions()
        self._drop_all()
        await self.producer.abort()
        while True:
            self.producer = self._make_producer()
            try:
                await self.producer.start()
                break
            except (ConnectionFailed, RequestTimedOut, ProducerFenced) as unreachable:
                logger.warning("no new producer for transactions yet: %s", unreachable)
            except BrokerError as refused:
                if not refused.retriable:
                    raise
                logger.warning("no new producer for transactions yet: %s", refused)
            await REAL_TIME.sleep(self._pause.next())
        await self._host.restart_partitions(firsts)
