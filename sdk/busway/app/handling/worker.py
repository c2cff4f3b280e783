"""Feeding an app's handlers and committing what they finish.

Here: assigned partitions with a lane per handler; back-pressure; revocations.
Not here: a lane (`lane`), commits (`commits`, `transactor`).

At least once: an offset is committed only when every record before it was handled, was filtered out, or is acknowledged
as a dead letter.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from busway.app.calling.layers import Handler
from busway.app.extending.hooks import Hooks
from busway.app.handling.assigned_partition import AssignedPartition
from busway.app.handling.attempts import AttemptContext, Counts
from busway.app.handling.batches import BatchLane
from busway.app.handling.commits import Commits
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.finished import finished, finished_ahead
from busway.app.handling.handler_output import HandlerOutput
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.lane import Lane, LaneContext
from busway.app.handling.loop_watchdog import LoopWatch
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.handling.transactor import Transactor
from busway.app.handling.worker_context import WorkerContext
from busway.app.model.outcomes import Outcomes
from busway.app.model.topic import OPEN_MAX_EXACTLY
from busway.consumer.consumer import Consumer
from busway.consumer.listener import RebalanceListener
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine, has_threads
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")

_POLL_MS: Final = 500


class Worker(RebalanceListener):
    """One group member that reads for all handlers of an app."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._group = context.group.encode()
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._consumer: Consumer | None = None
        self._handlers: dict[str, list[Handler]] = {}
        for handler in (each for each in context.handlers if each.route.group is None):
            for topic in dict.fromkeys(topic.name for topic in handler.route.topics):
                self._handlers.setdefault(topic, []).append(handler)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._beginning: list[set[TopicPartition]] = []
        """Partitions being opened, one set per concurrent call, without those revoked meanwhile."""
        self._revoked: set[TopicPartition] = set()
        """Partitions being revoked; the consumer still has them."""
        self._going: list[AssignedPartition] = []
        """Partitions being closed: their handled records are still committed, unless they are lost meanwhile."""
        self._ending = False
        self.hooks: Hooks = context.hooks
        self._commits = Commits(
            self._at_least_once, lambda: self.consumer, self.position, context.hooks, context.commit_interval_s
        )
        self.transactor: Transactor | None = (
            None
            if context.make_producer is None
            else Transactor(context.make_producer, self, context.hooks, context.commit_interval_s)
        )
        self.counts: Counts = Counts()
        self.unfinished: int = 0
        """Records begun and not finished when their partition was revoked; its next owner begins with them."""
        self._lane_context = LaneContext(
            attempts=AttemptContext(
                group=context.group,
                hooks=context.hooks,
                read=context.read,
                send_raw=context.send_raw,
                counts=self.counts,
                machine=current_machine(),
                transactor=self.transactor,
            ),
            sleep=context.sleep,
            on_finished=self._finished,
            on_failure=self._fail,
        )
        self.progress: asyncio.Event = asyncio.Event()
        """Set when a record is finished or partitions change; the waiter clears it."""

    @property
    def handled(self) -> int:
        return self.counts.handled

    @property
    def dead_lettered(self) -> int:
        return self.counts.dead_lettered

    @property
    def outcomes(self) -> Outcomes | None:
        return None if self.transactor is None else self.transactor.outcomes

    @property
    def records_in_hand(self) -> int:
        return sum(lane.schedule.running for assigned in self._assigned.values() for lane in assigned.lanes)

    def reads(self, consumer: Consumer) -> None:
        self._consumer = consumer

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    async def run(self) -> None:
        """Feed handlers until cancelled; then drain, commit, and return.

        Raises:
            HandlerFailed: a record failed for good and may not be dead-lettered.
            BuswayError: the brokers cannot be read.
        """
        loops = [self._commits.run(), self._feed(self.consumer)]
        if self.transactor is not None:
            loops.append(self.transactor.run())
        tasks = [asyncio.ensure_future(loop) for loop in loops]
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
        return LoopWatch([handler.route for handler in self._context.handlers]) if has_threads() else nullcontext()

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
        return any(lane.is_handling(task) for assigned in self._assigned.values() for lane in assigned.lanes)

    def _finished(self, items: Sequence[InFlightRecord]) -> None:
        for item in items:
            item.pending -= 1
            if item.pending:
                continue
            item.done.finish(item.record.offset)
            item.partition.open_bytes -= item.size
            if not item.buried:
                self.counts.handled += 1
        self.progress.set()
        self.make_room(items[0].partition)

    def make_room(self, partition: PartitionOffsets) -> None:
        assigned = self._assigned.get(partition.partition) if partition.paused else None
        if assigned is partition and assigned.has_room:  # otherwise it is being revoked, or was restarted
            partition.paused = False
            if partition.partition in self.consumer.assignment():
                self.consumer.resume(partition.partition)

    def _fail(self, problem: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(problem)
            self._failed.exception()  # marks it as retrieved: an ending worker raises nothing more

    def _at_least_once(self) -> list[AssignedPartition]:
        return [assigned for assigned in self._assigned.values() if not assigned.exactly_once]

    def exactly_once_partition(self, topics: Collection[str], partition: int) -> AssignedPartition | None:
        for topic_partition, assigned in self._assigned.items():
            if topic_partition.topic in topics and topic_partition.partition == partition and assigned.exactly_once:
                return assigned
        return None

    def parked(self) -> dict[TopicPartition, int]:
        return {
            partition: sum(lane.schedule.parked for lane in assigned.lanes)
            for partition, assigned in self._assigned.items()
        }

    def positions(self) -> dict[TopicPartition, int]:
        positions = {}
        for partition, assigned in self._assigned.items():
            if (below := assigned.done.committable) is not None:
                position = None if assigned.done.open else self.position(assigned)
                positions[partition] = max(below, position or 0)
        return positions

    # Rebalances

    async def on_partitions_assigned(self, assigned: Any) -> None:
        async with self._closing:
            pass  # a partition being closed may be assigned again
        await self._begin(dict.fromkeys(assigned, -1))

    async def _begin(self, firsts: Mapping[TopicPartition, int]) -> None:
        staying = set(self.consumer.assignment().intersection(firsts) - self._revoked)
        self._beginning.append(staying)
        try:
            async with self._opening:
                await self._begin_now(firsts, staying)
        finally:
            self._beginning = [beginning for beginning in self._beginning if beginning is not staying]
        self.progress.set()

    async def _begin_now(self, firsts: Mapping[TopicPartition, int], staying: AbstractSet[TopicPartition]) -> None:
        partitions = [partition for partition in firsts if partition in staying and partition not in self._assigned]
        try:
            # First the committed offsets: once they are decided, so are the rows that a former owner wrote with them.
            exactly_once = [partition for partition in partitions if self._is_exactly_once(partition.topic)]
            committed = await finished(self.consumer, exactly_once)
            offsets = await self._context.hooks.assigned(sorted(partitions))
            await self._context.on_assigned(sorted(partitions))
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
                self._open(partition, CompletedOffsets(start))  # nothing is committed yet
            else:
                self._open(partition, CompletedOffsets(None, done or ahead.get(partition)))
            self.consumer.resume(partition)  # `release_partitions` paused it
        await self._notify_revoked([partition for partition in partitions if partition not in staying])

    def _is_exactly_once(self, topic: str) -> bool:
        return any(handler.route.guarantee == "exactly_once" for handler in self._handlers[topic])

    def _open(self, partition: TopicPartition, done: CompletedOffsets) -> None:
        if self._ending:
            return
        handlers = self._handlers[partition.topic]
        buries = all(handler.route.dead_letter for handler in handlers)
        lanes = [
            (Lane if handler.route.batch is None else BatchLane)(
                self._lane_context, partition, handler, buries_unreadable=buries
            )
            for handler in handlers
        ]
        self._assigned[partition] = AssignedPartition(partition, lanes, done)

    # Host of the transactor

    def metadata(self) -> GroupMetadata:
        return self.consumer.member()

    def position(self, assigned: PartitionOffsets) -> int | None:
        """Return the consumer's position; updates `is_replaced` and `reset_at` too."""
        assigned.is_replaced = self.consumer.is_replaced(assigned.partition)
        if assigned.closing:
            return None if assigned.is_replaced else assigned.left_at
        assigned.reset_at = self.consumer.reset_at(assigned.partition)
        return self.consumer.known_position(assigned.partition)

    def is_idle(self) -> bool:
        return not any(
            lane.schedule.running or lane.schedule.queued
            for assigned in self._assigned.values()
            if assigned.exactly_once
            for lane in assigned.lanes
        )

    def is_behind(self) -> list[AssignedPartition]:
        ours = (assigned for assigned in self._assigned.values() if assigned.exactly_once)
        return [assigned for assigned in ours if assigned.is_behind(self.position(assigned))]

    async def committed(
        self, outputs: Sequence[HandlerOutput], offsets: Mapping[PartitionOffsets, OffsetAndMetadata]
    ) -> None:
        moved = {}
        for assigned, at in offsets.items():
            if assigned.committed is None or assigned.committed.offset != at.offset:
                moved[assigned.partition] = at.offset
            assigned.committed = at
        finished: dict[PartitionOffsets, list[InFlightRecord]] = {}
        for output in outputs:
            finished.setdefault(output.partition, []).extend(output.items)
        for items in finished.values():
            if items:
                self._finished(items)
        self.progress.set()
        await self._context.hooks.committed(moved)

    async def release_partitions(self) -> dict[TopicPartition, int]:
        """Stop handling all exactly_once partitions; pause the consumer until they restart.

        So it continues at its position if none of their records was delivered.
        """
        gone = self._take([partition for partition, assigned in self._assigned.items() if assigned.exactly_once])
        self.consumer.pause(*self.consumer.assignment().intersection(assigned.partition for assigned in gone))
        # Partitions being closed too: they may build upon dropped output, and their `_close` would wait for its commit.
        for assigned in (*gone, *self._going):
            assigned.dropped = True
        async with self._closing:
            await self._cancel({task for assigned in gone for lane in assigned.lanes for task in lane.close()})
            await self._notify_revoked([assigned.partition for assigned in gone])
        return {assigned.partition: assigned.done.first for assigned in gone}

    async def restart_partitions(self, firsts: Mapping[TopicPartition, int]) -> None:
        if firsts and not self._ending:
            await self._begin(firsts)

    # Revocations

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._close(revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        self._stay_without(lost)
        gone = self._take(lost)
        if self.transactor is not None:
            self.transactor.drop([*gone, *(closing for closing in self._going if closing.partition in lost)])
        async with self._closing:
            await self._cancel({task for assigned in gone for lane in assigned.lanes for task in lane.close()})
            await self._notify_revoked([assigned.partition for assigned in gone])
        self.progress.set()

    def _stay_without(self, partitions: Iterable[TopicPartition]) -> None:
        for staying in self._beginning:
            staying.difference_update(partitions)

    def _take(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        gone = [assigned for partition in partitions if (assigned := self._assigned.pop(partition, None)) is not None]
        for assigned in gone:
            assigned.left_at = self.position(assigned)
            assigned.closing = True
        return gone

    async def _notify_revoked(self, gone: Sequence[TopicPartition]) -> None:
        if not gone:
            return
        try:
            await self._context.hooks.revoked(sorted(gone))
        except BuswayError as problem:
            self._fail(problem)

    async def _cancel(self, tasks: "set[asyncio.Task[Any]]") -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, uncancelled = await REAL_TIME.wait(tasks, timeout=self._context.drain_timeout_s)
            if uncancelled:
                logger.error("%d handlers are still running after their cancellation", len(uncancelled))

    async def _close(self, partitions: Collection[TopicPartition]) -> None:
        """Close partitions; concurrent callers are serialised."""
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
            _, late = await REAL_TIME.wait(tasks, timeout=self._context.drain_timeout_s)
            if late:
                logger.warning(
                    "%d handlers did not end within %g s; their records come again",
                    len(late),
                    self._context.drain_timeout_s,
                )
                await self._cancel(late)
        if sending := {sent for lane in lanes for sent in lane.sending()}:
            await REAL_TIME.wait(sending, timeout=self._context.drain_timeout_s)
        self.unfinished += sum(lane.begun for lane in lanes)
        try:
            if self.transactor is not None:
                await self.transactor.settle(
                    [assigned for assigned in gone if assigned.exactly_once], self._context.drain_timeout_s
                )
            await self._commits.commit([assigned for assigned in gone if not assigned.exactly_once])
        except BuswayError as problem:
            self._fail(problem)
        await self._notify_revoked([assigned.partition for assigned in gone])
