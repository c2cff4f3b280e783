"""What feeds the handlers of an app and commits what they finished.

What lives here: the partitions that the app has, with a lane for each handler; back-pressure; giving partitions up. What does not: a
partition's way through a handler (`lane`), which handlers there are (`model.route`), commits (`commits`, `transactor`).

At least once: an offset is committed only when every record before it was handled, was not wanted, or lies acknowledged among the dead
letters.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from busway.app.calling.layers import Handler
from busway.app.handling.assigned import Assigned
from busway.app.handling.attempts import AttemptParts, Counts
from busway.app.handling.batches import BatchLane
from busway.app.handling.commits import Commits
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.finished import finished, finished_ahead
from busway.app.handling.item import Item
from busway.app.handling.lane import OPEN_MAX_EXACTLY, Lane, LaneParts
from busway.app.handling.loop_watchdog import LoopWatch
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.handling.transactor import Transactor
from busway.app.handling.work import Work
from busway.app.handling.worker_parts import WorkerParts
from busway.app.model.outcomes import Outcomes
from busway.consumer.consumer import Consumer
from busway.consumer.listener import RebalanceListener
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine, has_threads
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition

logger = logging.getLogger("busway.app")

_POLL_MS: Final = 500


class Worker(RebalanceListener):
    """Reads for all handlers of an app as one member of its group."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._group = parts.group.encode()
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._consumer: Consumer | None = None
        self._handlers: dict[str, list[Handler]] = {}
        for handler in (one for one in parts.handlers if one.route.group is None):
            for topic in dict.fromkeys(topic.name for topic in handler.route.topics):
                self._handlers.setdefault(topic, []).append(handler)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._beginning: list[set[TopicPartition]] = []
        """Partitions that are being begun with, for each time that some are; those that go meanwhile are taken out."""
        self._revoked: set[TopicPartition] = set()
        """What the group takes away at this moment; the consumer has it until that is done."""
        self._going: list[Assigned] = []
        """Partitions that are being given up: what was handled of them is committed still, unless they are lost meanwhile."""
        self._ending = False
        self.hooks = parts.hooks
        self._commits = Commits(
            self._at_least_once, lambda: self.consumer, self.place, parts.hooks, parts.commit_interval_s
        )
        self.transactor = (
            None
            if parts.make_producer is None
            else Transactor(parts.make_producer, self, parts.hooks, parts.commit_interval_s)
        )
        """What commits for handlers that are exactly_once; None where there are none."""
        self.counts = Counts()
        """What it has done."""
        self.unfinished = 0
        """Records that a handler began and did not finish before their partition went; their next owner begins with them."""
        self._lane_parts = LaneParts(
            attempts=AttemptParts(
                group=parts.group,
                hooks=parts.hooks,
                read=parts.read,
                send_raw=parts.send_raw,
                counts=self.counts,
                machine=current_machine(),
                transactor=self.transactor,
            ),
            sleep=parts.sleep,
            finished=self._finished,
            fail=self._fail,
        )
        self.progress = asyncio.Event()
        """Set whenever a record is finished or partitions come or go; who waits clears it."""

    @property
    def handled(self) -> int:
        """Records whose handlers all returned, or did not want them."""
        return self.counts.handled

    @property
    def dead_lettered(self) -> int:
        """Records that went to a dead-letter topic."""
        return self.counts.dead_lettered

    @property
    def outcomes(self) -> Outcomes | None:
        """What became of its transactions; None where it makes none."""
        return None if self.transactor is None else self.transactor.outcomes

    @property
    def records_in_hand(self) -> int:
        """Records that handlers are called with at this moment."""
        return sum(lane.schedule.running for assigned in self._assigned.values() for lane in assigned.lanes)

    def reads(self, consumer: Consumer) -> None:
        """Whose records it feeds; told before that consumer starts."""
        self._consumer = consumer

    @property
    def consumer(self) -> Consumer:
        """Whose records it feeds."""
        assert self._consumer is not None
        return self._consumer

    async def run(self) -> None:
        """Feed handlers until cancelled; then drain, commit, and return.

        Raises:
            HandlerFailed: a record failed for good and may not be put aside.
            BuswayError: the brokers cannot be read.
        """
        works = [self._commits.run(), self._feed(self.consumer)]
        if self.transactor is not None:
            works.append(self.transactor.run())
        tasks = [asyncio.ensure_future(work) for work in works]
        waits: list[asyncio.Future[None]] = [*tasks, self._failed]
        try:
            with self._watch():
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                if wait.done():
                    wait.result()
        finally:
            self._ending = True
            for task in tasks[:2]:
                task.cancel()
            await asyncio.wait(tasks[:2])
            try:
                await self._close(list(self._assigned))
            finally:
                for task in tasks[2:]:
                    task.cancel()
                    await asyncio.wait([task])
            self._failed.cancel()  # nothing, where it is done

    def _watch(self) -> AbstractContextManager[None]:
        """What tells of a handler that keeps the event loop, from a thread."""
        return LoopWatch([handler.route for handler in self._parts.handlers]) if has_threads() else nullcontext()

    async def _feed(self, consumer: Consumer) -> None:
        most = None if self.transactor is None else min(consumer.options.max_poll_records, OPEN_MAX_EXACTLY)
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS, max_records=most)).items():
                assigned = self._assigned.get(partition)
                if assigned is None or assigned.closing:
                    continue
                assigned.add(records, self._group)
                for lane in assigned.lanes:
                    lane.pump()
                if not assigned.paused and assigned.is_full:
                    consumer.pause(partition)
                    assigned.paused = True

    def is_handling(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether it is this task that calls the handlers of a partition."""
        return any(lane.is_handling(task) for assigned in self._assigned.values() for lane in assigned.lanes)

    def _finished(self, items: Sequence[Item]) -> None:
        """A handler is done with records of a partition."""
        for item in items:
            item.pending -= 1
            if item.pending:
                continue
            item.done.finish(item.record.offset)
            item.home.open_bytes -= item.size
            if not item.buried:
                self.counts.handled += 1
        self.progress.set()
        self.make_room(items[0].home)

    def make_room(self, home: PartitionOffsets) -> None:
        """Go on with a partition that was full."""
        assigned = self._assigned.get(home.partition) if home.paused else None
        if assigned is home and assigned.has_room:  # another one, or none: it is being given up
            home.paused = False
            if home.partition in self.consumer.assignment():
                self.consumer.resume(home.partition)

    def _fail(self, problem: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(problem)
            self._failed.exception()  # a worker that is ending already raises nothing more

    def _at_least_once(self) -> list[Assigned]:
        return [assigned for assigned in self._assigned.values() if not assigned.exactly_once]

    def home_of(self, topics: Collection[str], number: int) -> Assigned | None:
        """One of the partitions of that number that are handled exactly once; None if none is here."""
        for partition, assigned in self._assigned.items():
            if partition.topic in topics and partition.partition == number and assigned.exactly_once:
                return assigned
        return None

    def parked(self) -> dict[TopicPartition, int]:
        """For each partition how many records wait for their next attempt."""
        return {
            partition: sum(lane.schedule.parked for lane in assigned.lanes)
            for partition, assigned in self._assigned.items()
        }

    def positions(self) -> dict[TopicPartition, int]:
        """For each partition the offset behind the last record that is finished with all before it; those without are missing."""
        found = {}
        for partition, assigned in self._assigned.items():
            if (below := assigned.done.committable) is not None:
                place = None if assigned.done.open else self.place(assigned)
                found[partition] = max(below, place or 0)
        return found

    # Rebalances

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Open lanes for each new partition, after the service has loaded what it keeps for them."""
        async with self._closing:
            pass  # what is being closed still may come again
        await self._begin(dict.fromkeys(assigned, -1))

    async def _begin(self, firsts: Mapping[TopicPartition, int]) -> None:
        """Begin with partitions that this instance has; with where they began before, for those that nobody has committed anything of."""
        staying = set(self.consumer.assignment().intersection(firsts) - self._revoked)
        self._beginning.append(staying)
        try:
            async with self._opening:
                await self._begin_now(firsts, staying)
        finally:
            self._beginning = [one for one in self._beginning if one is not staying]
        self.progress.set()

    async def _begin_now(self, firsts: Mapping[TopicPartition, int], staying: AbstractSet[TopicPartition]) -> None:
        partitions = [partition for partition in firsts if partition in staying and partition not in self._assigned]
        try:
            # First what is committed: once that is decided, so are the rows that a former owner wrote with it.
            exactly_once = [partition for partition in partitions if self._is_exactly_once(partition.topic)]
            committed = await finished(self.consumer, exactly_once)
            offsets = await self._parts.hooks.assigned(sorted(partitions))
            await self._parts.on_assigned(sorted(partitions))
            others = [partition for partition in partitions if partition not in offsets and partition not in committed]
            ahead = await finished_ahead(self.consumer, others)
        except Exception as problem:  # noqa: BLE001 - the user's code; the worker raises it
            self._fail(problem)
            return
        for partition in partitions:
            if partition not in staying:
                continue
            done = committed.get(partition)
            if (start := offsets.get(partition, firsts[partition] if done is None else done.below)) >= 0:
                self.consumer.seek(partition, start)
            if partition in offsets:
                self._open(partition, CompletedOffsets(start))
            elif done is None and start >= 0:
                self._open(partition, CompletedOffsets(start))  # nothing of it is committed yet
            else:
                self._open(partition, CompletedOffsets(None, done or ahead.get(partition)))
            self.consumer.resume(partition)  # `let_go` has paused it
        await self._tell_revoked([partition for partition in partitions if partition not in staying])

    def _is_exactly_once(self, topic: str) -> bool:
        return any(handler.route.guarantee == "exactly_once" for handler in self._handlers[topic])

    def _open(self, partition: TopicPartition, done: CompletedOffsets) -> None:
        if self._ending:
            return
        handlers = self._handlers[partition.topic]
        buries = all(handler.route.dead_letter for handler in handlers)
        lanes = [
            (Lane if handler.route.batch is None else BatchLane)(
                self._lane_parts, partition, handler, buries_unreadable=buries
            )
            for handler in handlers
        ]
        self._assigned[partition] = Assigned(partition, lanes, done)

    # What the transactor asks

    def metadata(self) -> GroupMetadata:
        """The member as its group knows it now."""
        return self.consumer.member()

    def place(self, assigned: PartitionOffsets) -> int | None:
        """Where the consumer goes on; `is_replaced` and `reset_at` are kept up to date with it."""
        assigned.is_replaced = self.consumer.is_replaced(assigned.partition)
        if assigned.closing:
            return None if assigned.is_replaced else assigned.left_at
        assigned.reset_at = self.consumer.reset_at(assigned.partition)
        return self.consumer.place(assigned.partition)

    def is_idle(self) -> bool:
        """Whether no record waits for a handler that is exactly_once, or is being handled by one."""
        return not any(
            lane.schedule.running or lane.schedule.queued
            for assigned in self._assigned.values()
            if assigned.exactly_once
            for lane in assigned.lanes
        )

    def is_behind(self) -> list[Assigned]:
        """Partitions whose records are all finished, and whose offset can be moved on past markers and aborted records."""
        ours = (assigned for assigned in self._assigned.values() if assigned.exactly_once)
        return [assigned for assigned in ours if assigned.is_behind(self.place(assigned))]

    async def committed(self, works: Sequence[Work], offsets: Mapping[PartitionOffsets, OffsetAndMetadata]) -> None:
        """A transaction is committed."""
        moved = {}
        for assigned, at in offsets.items():
            if assigned.committed is None or assigned.committed.offset != at.offset:
                moved[assigned.partition] = at.offset
            assigned.committed = at
        finished: dict[PartitionOffsets, list[Item]] = {}
        for work in works:
            finished.setdefault(work.home, []).extend(work.items)
        for items in finished.values():
            if items:
                self._finished(items)
        self.progress.set()
        await self._parts.hooks.committed(moved)

    async def let_go(self) -> dict[TopicPartition, int]:
        """Stop handling what is handled exactly once, all of it; answers where each of the partitions began.

        The consumer hands out nothing of them until they are begun anew, so it goes on where it is if no record of theirs was handed out.
        """
        gone = self._take([partition for partition, assigned in self._assigned.items() if assigned.exactly_once])
        self.consumer.pause(*self.consumer.assignment().intersection(assigned.partition for assigned in gone))
        # With them what is being given up: it may build upon what was dropped, and whoever gives it up would wait for its commit.
        for assigned in (*gone, *self._going):
            assigned.dropped = True
        async with self._closing:
            await self._cancel({task for assigned in gone for lane in assigned.lanes for task in lane.close()})
            await self._tell_revoked([assigned.partition for assigned in gone])
        return {assigned.partition: assigned.done.first for assigned in gone}

    async def begin_anew(self, firsts: Mapping[TopicPartition, int]) -> None:
        """Begin those that are still here, from what is committed."""
        if firsts and not self._ending:
            await self._begin(firsts)

    # Giving partitions up

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Let running handlers end, commit, close the lanes."""
        await self._close(revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Others have the partitions already: stop."""
        self._stay_without(lost)
        gone = self._take(lost)
        if self.transactor is not None:
            self.transactor.drop([*gone, *[one for one in self._going if one.partition in lost]])
        async with self._closing:
            await self._cancel({task for assigned in gone for lane in assigned.lanes for task in lane.close()})
            await self._tell_revoked([assigned.partition for assigned in gone])
        self.progress.set()

    def _stay_without(self, partitions: Iterable[TopicPartition]) -> None:
        for staying in self._beginning:
            staying.difference_update(partitions)

    def _take(self, partitions: Iterable[TopicPartition]) -> list[Assigned]:
        gone = [assigned for partition in partitions if (assigned := self._assigned.pop(partition, None)) is not None]
        for assigned in gone:
            assigned.left_at = self.place(assigned)
            assigned.closing = True
        return gone

    async def _tell_revoked(self, gone: Sequence[TopicPartition]) -> None:
        if not gone:
            return
        try:
            await self._parts.hooks.revoked(sorted(gone))
        except BuswayError as problem:
            self._fail(problem)

    async def _cancel(self, tasks: "set[asyncio.Task[Any]]") -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await REAL_TIME.wait(tasks, timeout=self._parts.drain_timeout_s)
            if deaf:
                logger.error("%d handlers go on although they were cancelled", len(deaf))

    async def _close(self, partitions: Collection[TopicPartition]) -> None:
        """Who comes while partitions are being closed waits until they are."""
        self._stay_without(partitions)
        self._revoked.update(partitions)
        try:
            async with self._closing:
                await self._close_now(partitions)
        finally:
            self._revoked.difference_update(partitions)
        self.progress.set()

    async def _close_now(self, partitions: Iterable[TopicPartition]) -> None:
        self._going = gone = self._take(partitions)
        if not gone:
            return
        lanes = [lane for assigned in gone for lane in assigned.lanes]
        if tasks := {task for lane in lanes for task in lane.close()}:
            _, late = await REAL_TIME.wait(tasks, timeout=self._parts.drain_timeout_s)
            if late:
                logger.warning(
                    "%d handlers did not end within %g s; their records come again",
                    len(late),
                    self._parts.drain_timeout_s,
                )
                await self._cancel(late)
        if sending := {sent for lane in lanes for sent in lane.sending()}:
            await REAL_TIME.wait(sending, timeout=self._parts.drain_timeout_s)
        self.unfinished += sum(lane.begun for lane in lanes)
        try:
            if self.transactor is not None:
                await self.transactor.settle(
                    [assigned for assigned in gone if assigned.exactly_once], self._parts.drain_timeout_s
                )
            await self._commits.commit([assigned for assigned in gone if not assigned.exactly_once])
        except BuswayError as problem:
            self._fail(problem)
        await self._tell_revoked([assigned.partition for assigned in gone])
