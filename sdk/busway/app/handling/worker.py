"""What feeds the handlers of an app and commits what they finished.

What lives here: the partitions that the app has, with a lane for each handler; back-pressure; commits; giving partitions up. What does
not: a partition's way through a handler (`lane`), which handlers there are (`declaring.routes`), what may be committed (`ack`).

At least once: an offset is committed only when every record before it was handled, was not wanted, or lies acknowledged among the dead
letters.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from busway.app.declaring.routes import BATCH_MAX, ConsumerRecord
from busway.app.handling.ack import CompletedOffsets
from busway.app.handling.attempts import AttemptParts, Counts, HandlerFailed, Item, SendRaw
from busway.app.handling.batches import BatchLane
from busway.app.handling.calls import Handler
from busway.app.handling.lag import LoopWatch
from busway.app.handling.lane import Lane, LaneParts, Sleep
from busway.app.hooks import Hooks
from busway.app.offset_set import OffsetSet
from busway.consumer.consumer import Consumer, RebalanceListener
from busway.errors import BrokerError, BuswayError, CommitFailed
from busway.net.machine import current_machine, has_threads
from busway.types import OffsetAndMetadata, Record, TopicPartition
from busway_protocol.errors import ErrorCode

__all__ = ["HandlerFailed", "Worker", "WorkerParts"]

log = logging.getLogger("busway.app")

OPEN_MAX: Final = BATCH_MAX
"""Records of a partition that a handler has not finished: those that wait, are parked or run; above, the partition is paused."""
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the keys and values of a partition's records that not all handlers have finished; above, it is paused."""
LOW_WATER: Final = 250
"""It goes on when no more than these wait for a handler that could take them."""
AHEAD_MAX: Final = 20_000
"""Records between the lowest unfinished one and the last that came; above, the partition is paused. Which of them are finished is
committed with the offset, so that they do not come again; `offset_set` has room for some 800 gaps, what is behind those does."""
REPLAY_HEADER: Final = "busway_replay-for-group"
"""On a record that was replayed for one group alone; others have handled it before."""
REPLAY_HANDLER: Final = "busway_replay-for-handler"
"""And for this one of its handlers; if the group has none of that name any more, all of them get it."""
_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What the worker is made of; the App knows how to make it."""

    group: str
    handlers: Sequence[Handler]
    read: Callable[[Record], ConsumerRecord[Any, Any]]
    send_raw: SendRaw
    on_assigned: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    hooks: Hooks
    sleep: Sleep
    commit_interval_s: float
    drain_timeout_s: float


class Assigned:
    """A partition that the app has: its lanes, and how far all of them are."""

    __slots__ = ("closing", "committed", "done", "lanes", "open_bytes", "partition", "paused")

    def __init__(self, partition: TopicPartition, lanes: Sequence[Lane], done: CompletedOffsets) -> None:
        self.partition = partition
        self.lanes = lanes
        self.done = done
        self.committed: OffsetAndMetadata | None = None
        self.open_bytes = 0
        self.paused = False
        self.closing = False

    def add(self, records: Iterable[Record], group: bytes) -> None:
        """Records arrived, in their order."""
        items: list[Item] = []
        chosen: dict[Item, Sequence[Lane]] = {}
        for record in records:
            if not self.done.follows(record.offset):
                log.warning("%s-%d goes on at offset %d, behind what came before", *record[:3])
                self.done = CompletedOffsets()  # the topic was made anew; what is under way counts for the old one
            if not self.done.begin(record.offset):
                continue
            if record.headers and is_for_others(record, group):
                self.done.finish(record.offset)
                continue
            lanes = self._lanes_for(record) if record.headers else self.lanes
            items.append(item := Item(self.done, record, len(lanes), self))
            self.open_bytes += item.size
            if lanes is not self.lanes:
                chosen[item] = lanes
        for lane in self.lanes:
            lane.add([item for item in items if lane in chosen.get(item, self.lanes)] if chosen else items)

    def _lanes_for(self, record: Record) -> Sequence[Lane]:
        name = next((value for name, value in record.headers if name == REPLAY_HANDLER), None)
        mine = [lane for lane in self.lanes if lane.name.encode() == name] if name else []
        return mine or self.lanes

    @property
    def committable(self) -> OffsetAndMetadata | None:
        """What to commit; None while there is nothing."""
        found = self.done.all_finished
        return None if found is None else OffsetAndMetadata(found.below, found.short_text)

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fetched for now."""
        if self.done.open >= AHEAD_MAX or self.open_bytes >= OPEN_BYTES_MAX:
            return True
        return any(lane.schedule.open >= OPEN_MAX for lane in self.lanes)

    @property
    def has_room(self) -> bool:
        """Whether a paused partition should go on."""
        for lane in self.lanes:  # asked for each record: the cheap question first
            if lane.schedule.queued > LOW_WATER:
                return False
        return not self.is_full


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
        self._committing = asyncio.Lock()
        self._ending = False
        self.hooks = parts.hooks
        self._counts = Counts()
        self.unfinished = 0
        """Records that a handler began and did not finish before their partition went; their next owner begins with them."""
        self._lane_parts = LaneParts(
            attempts=AttemptParts(
                group=parts.group,
                hooks=parts.hooks,
                read=parts.read,
                send_raw=parts.send_raw,
                counts=self._counts,
                machine=current_machine(),
            ),
            sleep=parts.sleep,
            finished=self._finished,
            fail=self._fail,
        )
        self.progress = asyncio.Event()
        """Set whenever a record is finished or partitions come or go; who waits clears it."""

    @property
    def counts(self) -> Counts:
        """What it has done."""
        return self._counts

    @property
    def handled(self) -> int:
        """Records whose handlers all returned, or did not want them."""
        return self._counts.handled

    @property
    def dead_lettered(self) -> int:
        """Records that went to a dead-letter topic."""
        return self._counts.dead_lettered

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
        committing = asyncio.ensure_future(self._commit_regularly())
        feeding = asyncio.ensure_future(self._feed(self.consumer))
        waits: list[asyncio.Future[None]] = [committing, feeding, self._failed]
        try:
            with self._watch():
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                if wait.done():
                    wait.result()
        finally:
            self._ending = True
            for task in (committing, feeding):
                task.cancel()
            await asyncio.wait([committing, feeding])
            await self._close(list(self._assigned))
            if not self._failed.done():
                self._failed.cancel()

    def _watch(self) -> AbstractContextManager[None]:
        """What tells of a handler that keeps the event loop, from a thread."""
        return LoopWatch([handler.route for handler in self._parts.handlers]) if has_threads() else nullcontext()

    async def _feed(self, consumer: Consumer) -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
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
                self._counts.handled += 1
        self.progress.set()
        home: Assigned = items[0].home
        if home.paused and not home.closing and home.has_room:
            home.paused = False
            if home.partition in self.consumer.assignment():
                self.consumer.resume(home.partition)

    def _fail(self, problem: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(problem)
            self._failed.exception()  # a worker that is ending already raises nothing more

    # Commits

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._parts.commit_interval_s)
            async with self._committing:  # one at a time, so that a slow commit never comes after a later one
                await self._commit_now(list(self._assigned.values()))

    async def _commit(self, those: Sequence[Assigned]) -> None:
        """Partitions that are going, with what became of them last."""
        async with self._committing:
            await self._commit_now(those)

    async def _commit_now(self, partitions: Sequence[Assigned]) -> None:
        offsets = {
            assigned: at
            for assigned in partitions
            if (at := assigned.committable) is not None and at != assigned.committed
        }
        if not offsets:
            return
        first = {
            assigned.partition: assigned.done.first if assigned.committed is None else assigned.committed.offset
            for assigned in offsets
        }
        await self._reached("before-commit", first)
        try:
            await self._send_commit({assigned.partition: at for assigned, at in offsets.items()})
        except CommitFailed as problem:
            log.warning("the group has moved on; what was handled will be handled again: %s", problem)
            return
        except BuswayError as problem:
            log.warning("offsets were not committed, the next commit brings them: %s", problem)
            return
        moved = {
            assigned.partition: at.offset
            for assigned, at in offsets.items()
            if assigned.committed is None or assigned.committed.offset != at.offset
        }
        for assigned, at in offsets.items():
            assigned.committed = at
        await self._parts.hooks.committed(moved)
        await self._reached("after-commit", first)

    async def _send_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self.consumer.commit(offsets)
        except BrokerError as problem:
            if problem.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            # Brokers with a smaller offset.metadata.max.bytes than Kafka's own: what is finished ahead may come again there.
            await self.consumer.commit({partition: at.offset for partition, at in offsets.items()})

    async def _reached(self, point: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._parts.hooks.stepped:
            for partition, offset in offsets.items():
                await self._parts.hooks.reached(point, partition, offset)

    def parked(self) -> dict[TopicPartition, int]:
        """For each partition how many records wait for their next attempt."""
        return {
            partition: sum(lane.schedule.parked for lane in assigned.lanes)
            for partition, assigned in self._assigned.items()
        }

    def positions(self) -> dict[TopicPartition, int]:
        """For each partition the offset behind the last record that is finished with all before it; those without are missing."""
        return {
            partition: assigned.done.committable
            for partition, assigned in self._assigned.items()
            if assigned.done.committable is not None
        }

    # Rebalances

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Open lanes for each new partition, after the service has loaded what it keeps for them."""
        try:
            offsets = await self._parts.hooks.assigned(sorted(assigned))
            await self._parts.on_assigned(sorted(assigned))
        except Exception as problem:  # noqa: BLE001 - the user's code; the worker raises it
            self._fail(problem)
            return
        ahead = await self._finished_ahead([partition for partition in assigned if partition not in offsets])
        for partition in assigned:
            if partition in offsets:
                self.consumer.seek(partition, offsets[partition])
            self._open(partition, CompletedOffsets(offsets.get(partition), ahead.get(partition)))
        self.progress.set()

    async def _finished_ahead(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSet]:
        """What the group's metadata says is finished beyond the committed offsets; where that cannot be had, it is handled again."""
        if not partitions:
            return {}
        try:
            committed = await self.consumer.committed_of(partitions)
            finished = {
                partition: OffsetSet.parse(at.offset, at.metadata) for partition, at in committed.items() if at.metadata
            }
            finished = {partition: ahead for partition, ahead in finished.items() if ahead.end > ahead.below}
            ends = await self.consumer.end_offsets(finished) if finished else {}
        except BuswayError as problem:
            log.warning("what was finished ahead of the committed offsets is not known and handled again: %s", problem)
            return {}
        # A log that ends below has lost its tail: those offsets are, or will be, other records'.
        return {partition: ahead for partition, ahead in finished.items() if ahead.end <= ends.get(partition, 0)}

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

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Let running handlers end, commit, close the lanes."""
        await self._close(revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Others have the partitions already: stop."""
        async with self._closing:
            gone = self._take(lost)
            await self._cancel({task for assigned in gone for lane in assigned.lanes for task in lane.close()})
            await self._tell_revoked(gone)
        self.progress.set()

    def _take(self, partitions: Iterable[TopicPartition]) -> list[Assigned]:
        gone = [assigned for partition in partitions if (assigned := self._assigned.pop(partition, None)) is not None]
        for assigned in gone:
            assigned.closing = True
        return gone

    async def _tell_revoked(self, gone: Sequence[Assigned]) -> None:
        if not gone:
            return
        try:
            await self._parts.hooks.revoked(sorted(assigned.partition for assigned in gone))
        except BuswayError as problem:
            self._fail(problem)

    async def _cancel(self, tasks: "set[asyncio.Task[Any]]") -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=self._parts.drain_timeout_s)
            if deaf:
                log.error("%d handlers go on although they were cancelled", len(deaf))

    async def _close(self, partitions: Iterable[TopicPartition]) -> None:
        """Who comes while partitions are being closed waits until they are."""
        async with self._closing:
            await self._close_now(partitions)
        self.progress.set()

    async def _close_now(self, partitions: Iterable[TopicPartition]) -> None:
        gone = self._take(partitions)
        if not gone:
            return
        lanes = [lane for assigned in gone for lane in assigned.lanes]
        if tasks := {task for lane in lanes for task in lane.close()}:
            _, late = await asyncio.wait(tasks, timeout=self._parts.drain_timeout_s)
            if late:
                log.warning(
                    "%d handlers did not end within %g s; their records come again",
                    len(late),
                    self._parts.drain_timeout_s,
                )
                await self._cancel(late)
        if sending := {sent for lane in lanes for sent in lane.sending()}:
            await asyncio.wait(sending, timeout=self._parts.drain_timeout_s)
        self.unfinished += sum(lane.begun for lane in lanes)
        try:
            await self._commit(gone)
        except BuswayError as problem:
            self._fail(problem)
        await self._tell_revoked(gone)


def is_for_others(record: Record, group: bytes) -> bool:
    """Whether it was replayed for another group alone."""
    return any(name == REPLAY_HEADER and value != group for name, value in record.headers)
