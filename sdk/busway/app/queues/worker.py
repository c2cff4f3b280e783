"""Feeding one queue's handler and acknowledging its records.

Here: concurrency, lock renewal, acknowledgements, draining.
Not here: calling the handler (`handling.attempts`), the share group (`busway.share`).

At least once: a record is accepted when its handler has returned and its sends are acknowledged, rejected when
dead-lettered, and released otherwise. Its delivery count is its attempt, so attempts of killed processes count too.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.app.calling.depends import Current, current
from busway.app.calling.layers import Handler, acknowledged
from busway.app.dead_letters.headers import is_for_others
from busway.app.handling.assigned_partition import OPEN_BYTES_MAX
from busway.app.handling.attempts import AttemptContext, Attempts, Counts, Sent
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.lane import GivenUp, Sleep
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.model.retry import HandlerFailed
from busway.errors import AcknowledgementFailed, DamagedData
from busway.net.clock import REAL_TIME
from busway.share.consumer import Acknowledge, ShareConsumer
from busway.types import Record, TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")

PARKED_MAX: Final = 1000
"""Failed records that wait for their release to the next attempt; above, no new ones are taken."""
NO_OFFSETS: Final = PartitionOffsets(TopicPartition("", -1), CompletedOffsets(), exactly_once=False)
"""Placeholder partition of a queue's records: a share group acknowledges records and commits no offsets."""
_POLL_MS: Final = 500
_RENEWALS: Final = 4
"""A lock is renewed after 1/_RENEWALS of its time, so a lost renewal can be repeated."""
_LOCK_LOOK_S: Final = 0.2


@dataclass(slots=True, eq=False)
class LockedRecord:
    """A record in the handler, or waiting for its release; `since_s` is the time of its last lock."""

    record: Record
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """Dependencies of a queue's worker.

    Attributes:
        attempts: with the name of the share group.
        consumer: started by the app, stopped by the worker.
    """

    attempts: AttemptContext
    handler: Handler
    consumer: ShareConsumer
    sleep: Sleep
    drain_timeout_s: float


class QueueWorker:
    """Worker of one queue."""

    def __init__(self, context: QueueContext) -> None:
        route = context.handler.route
        self.consumer: ShareConsumer = context.consumer
        self.group: str = context.attempts.group
        self.topics: tuple[str, ...] = tuple(topic.name for topic in route.topics)
        self.unfinished: int = 0
        """Records begun and not finished at the end; other members get them."""
        self.progress: asyncio.Event = asyncio.Event()
        """Set when a record is done; the waiter clears it."""
        self._context = context
        self._group = self.group.encode()
        self._concurrency = route.concurrency
        self._attempts = Attempts(
            context.attempts, context.handler, buries_unreadable=route.dead_letter, rest=self._rest
        )
        self._hands: dict[asyncio.Task[None], LockedRecord] = {}
        self._resting: set[asyncio.Task[Any]] = set()
        self._parked: set[asyncio.Task[Any]] = set()
        self._bytes = 0
        self._room = asyncio.Event()
        self._closing = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def counts(self) -> Counts:
        """Counters of all queues of the app together."""
        return self._context.attempts.counts

    @property
    def has_joined(self) -> bool:
        return self.consumer.has_joined

    @property
    def records_in_hand(self) -> int:
        return len(self._hands) - len(self._parked)

    def is_handling(self, task: "asyncio.Task[Any] | None") -> bool:
        return task in self._hands

    async def run(self) -> None:
        """Feed the handler until cancelled; then drain, release the rest, and leave the group.

        Raises:
            HandlerFailed: a record failed for good and may not be dead-lettered.
            BuswayError: the group is refused.
        """
        feeding, renewing = asyncio.ensure_future(self._feed()), asyncio.ensure_future(self._renew())
        waits: list[asyncio.Future[None]] = [feeding, renewing, self._failed]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                if wait.done():
                    wait.result()
        finally:
            self._closing = True
            feeding.cancel()
            try:
                await asyncio.wait([feeding])
                await self._drain()
            finally:
                for task in (renewing, *self._hands):
                    task.cancel()
                if not self._failed.done():
                    self._failed.cancel()
            await asyncio.wait([renewing])
            await self.consumer.stop()

    async def _drain(self) -> None:
        for task in self._resting:
            task.cancel()
        if not self._hands:
            return
        _, late = await REAL_TIME.wait(self._hands, timeout=self._context.drain_timeout_s)
        if late:
            logger.warning(
                "%d handlers did not end within %g s; their records go to others",
                len(late),
                self._context.drain_timeout_s,
            )
            self.unfinished += len(late)
            for task in late:
                task.cancel()
            _, uncancelled = await REAL_TIME.wait(late, timeout=self._context.drain_timeout_s)
            if uncancelled:
                logger.error("%d handlers are still running after their cancellation", len(uncancelled))

    def _fail(self, problem: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(problem)
            self._failed.exception()  # marks it as retrieved: an ending worker raises nothing more

    # Feeding

    @property
    def _free(self) -> int:
        if len(self._parked) >= PARKED_MAX or self._bytes >= OPEN_BYTES_MAX:
            return 0
        return self._concurrency - (len(self._hands) - len(self._parked))

    async def _feed(self) -> None:
        while True:
            if (free := self._free) <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                fetched = await self.consumer.getmany(timeout_ms=_POLL_MS, max_records=free)
            except DamagedData as problem:
                logger.error("share group %s: %s", self.group, problem)
                continue
            for records in fetched.values():
                for record in records:
                    self._begin(record)

    def _begin(self, record: Record) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._handle(record))
        self._hands[task] = LockedRecord(record, REAL_TIME.now_s())
        size = len(record.key or b"") + len(record.value or b"")
        self._bytes += size

        def done(task: "asyncio.Task[None]") -> None:
            del self._hands[task]
            self._parked.discard(task)
            self._bytes -= size
            self._room.set()
            self.progress.set()

        task.add_done_callback(done)

    # Handling

    async def _handle(self, record: Record) -> None:
        try:
            kind = await self._work(record)
        except GivenUp:
            return
        except Exception as problem:  # noqa: BLE001 - the worker raises it
            self._fail(problem)
            return
        except BaseException as problem:
            if not self._closing:  # else `run` cancelled it
                where = f"{record.topic}-{record.partition}"
                self._fail(HandlerFailed(f"{self._attempts.route.name} was ended on {where}: {problem!r}"))
            raise
        self._acknowledge(record, kind)

    async def _work(self, record: Record) -> Acknowledge:
        if record.headers and is_for_others(record, self._group):
            return "accept"
        mark = Current()
        current.set(mark)
        mark.key, mark.attempt = record.key, record.delivery_count or 1
        item = InFlightRecord(NO_OFFSETS.done, record, 1, NO_OFFSETS)
        typed = await self._attempts.read(item)
        if typed is None:
            return "reject"
        sent: Sent = []
        wait_s = await self._attempts.make(item, typed, mark, sent)
        if wait_s is not None:
            await self._park(wait_s)
            return "release"
        await self._attempts.acknowledged(item, sent)
        await self._sent(item, sent)
        if item.buried:
            return "reject"
        self._context.attempts.counts.handled += 1
        return "accept"

    async def _sent(self, item: InFlightRecord, sent: Sequence["asyncio.Future[Any]"]) -> None:
        try:
            await acknowledged(sent)
        except Exception as problem:
            raise HandlerFailed(
                f"what was sent for {item.where} was not acknowledged, so it is handled again: {problem}"
            ) from problem

    def _acknowledge(self, record: Record, kind: Acknowledge) -> None:
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        try:
            acknowledgement = self.consumer.acknowledge(record, kind)
        except AcknowledgementFailed as problem:
            logger.warning("it is delivered again: %s", problem)
            return

        def seen(future: "asyncio.Future[None]") -> None:
            if not future.cancelled() and (problem := future.exception()) is not None:
                logger.warning("%s was not %sed, it is delivered again: %s", where, kind, problem)
            self.progress.set()

        acknowledgement.add_done_callback(seen)

    # Waiting

    async def _park(self, wait_s: float) -> None:
        """Wait until any member may make the next attempt; the slot is freed, the lock stays.

        `GivenUp` if the app stops, which releases the record at once.
        """
        me = asyncio.current_task()
        assert me is not None
        self._parked.add(me)
        self._room.set()
        try:
            await self._rest(wait_s)
        except asyncio.CancelledError:
            if self._closing:
                raise GivenUp from None
            raise

    async def _rest(self, wait_s: float) -> None:
        """Wait in place; `GivenUp` if the app stops, which releases the record."""
        if self._closing:
            raise GivenUp
        me = asyncio.current_task()
        assert me is not None
        self._resting.add(me)
        try:
            await self._context.sleep(wait_s)
        finally:
            self._resting.discard(me)

    async def _renew(self) -> None:
        while True:
            lock_ms = self.consumer.acquisition_lock_timeout_ms
            part_s = _LOCK_LOOK_S if lock_ms is None else lock_ms / 1000 / _RENEWALS
            await REAL_TIME.sleep(part_s)
            now = REAL_TIME.now_s()
            for in_hand in list(self._hands.values()):
                if now - in_hand.since_s >= part_s:
                    in_hand.since_s = now
                    self._renew_lock(in_hand.record)

    def _renew_lock(self, record: Record) -> None:
        try:
            acknowledgement = self.consumer.acknowledge(record, "renew")
        except AcknowledgementFailed:
            return  # its lock has expired; acknowledging the record reports that

        def seen(future: "asyncio.Future[None]") -> None:
            if not future.cancelled() and (problem := future.exception()) is not None:
                logger.warning("a lock was not renewed, its record may be handled by others too: %s", problem)

        acknowledgement.add_done_callback(seen)
