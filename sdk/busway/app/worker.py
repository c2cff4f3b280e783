"""The loop that feeds handlers and commits what they finished.

What lives here: one lane for each partition, in order; back-pressure; retries and dead letters; commits; giving partitions up. What
does not: which handlers there are (`routes`), when to retry (`failures`), what may be committed (`ack`).

At least once: an offset is committed only when every record before it was handled or lies acknowledged among the dead letters.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from busway.app.ack import CompletedOffsets
from busway.app.extension import Call, Handling, Outcome
from busway.app.failures import dead_letter_headers, dead_letter_topic, is_too_large, without_long_ones
from busway.app.hooks import Hooks
from busway.app.routes import ConsumerRecord, Headers, Route, Topic
from busway.consumer.consumer import Consumer, RebalanceListener
from busway.errors import BuswayError, CommitFailed
from busway.serde.avro import Undecodable
from busway.types import Record, TopicPartition

log = logging.getLogger("busway.app")

HIGH_WATER: Final = 1000
"""Records of a partition that wait for their handler; above, the partition is paused."""
LOW_WATER: Final = 250
"""At so few it goes on."""
_POLL_MS: Final = 500

Decode = Callable[[Record], Awaitable[ConsumerRecord[Any, Any]]]
SendRaw = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[Any]]
Sleep = Callable[[float], Awaitable[None]]


unacknowledged: ContextVar[list["asyncio.Future[Any]"] | None] = ContextVar("unacknowledged", default=None)
"""Inside a handler: what it sent without waiting. Its record is finished when all of that is acknowledged."""


class _GivenUp(Exception):
    """The partition goes before its record could be tried again."""


class Cancelled(Exception):
    """What a handler waited for was cancelled by somebody else than the app."""


class HandlerFailed(BuswayError):
    """A handler failed for good, and its record may not go to the dead letters; the app stops so that nothing is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What the worker is made of; the App knows how to make it."""

    group: str
    routes: Sequence[Route]
    topics: Mapping[str, Topic[Any, Any]]
    decode: Decode
    send_raw: SendRaw
    on_assigned: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    hooks: Hooks
    sleep: Sleep
    commit_interval_s: float
    drain_timeout_s: float


@dataclass(slots=True)
class _Lane:
    """One partition: what waits, what is done, and the task that works through it."""

    partition: TopicPartition
    waiting: deque[tuple[CompletedOffsets, Record]] = field(default_factory=deque)
    done: CompletedOffsets = field(default_factory=CompletedOffsets)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False
    paused: bool = False
    resting: bool = False
    committed: int | None = None
    task: asyncio.Task[None] | None = None
    sending: set["asyncio.Future[Any]"] = field(default_factory=set)


class Worker(RebalanceListener):
    """Reads for all handlers of an app as one member of its group."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._consumer: Consumer | None = None
        self._routes: dict[str, list[tuple[Route, Call]]] = {}
        for route in parts.routes:
            call = parts.hooks.around(route)
            for topic in route.topics:
                self._routes.setdefault(topic.name, []).append((route, call))
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Lock()
        self._committing = asyncio.Lock()
        self._ending = False
        self.handled = 0
        """Records whose handlers all returned."""
        self.dead_lettered = 0
        """Records that went to a dead-letter topic."""
        self.progress = asyncio.Event()
        """Set whenever a record is finished or partitions come or go; who waits clears it."""

    def reads(self, consumer: Consumer) -> None:
        """Whose records it feeds; told before that consumer starts."""
        self._consumer = consumer

    async def run(self) -> None:
        """Feed handlers until cancelled; then drain, commit, and return.

        Raises:
            HandlerFailed: a record failed for good and may not be put aside.
            BuswayError: the brokers cannot be read.
        """
        assert self._consumer is not None
        committing = asyncio.ensure_future(self._commit_regularly())
        feeding = asyncio.ensure_future(self._feed(self._consumer))
        waits: list[asyncio.Future[None]] = [committing, feeding, self._failed]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                if wait.done():
                    wait.result()
        finally:
            self._ending = True
            for task in (committing, feeding):
                task.cancel()
            await asyncio.wait([committing, feeding])
            await self._close(list(self._lanes))
            if not self._failed.done():
                self._failed.cancel()

    async def _feed(self, consumer: Consumer) -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                lane = self._lanes.get(partition)
                if lane is None or lane.closing:
                    continue
                for record in records:
                    if not lane.done.follows(record.offset):
                        log.warning("%s-%d goes on at offset %d, behind what came before", *partition, record.offset)
                        lane.done = (
                            CompletedOffsets()
                        )  # the topic was made anew; what is under way counts for the old one
                    lane.done.begin(record.offset)
                    lane.waiting.append((lane.done, record))
                lane.arrived.set()
                if len(lane.waiting) >= HIGH_WATER and not lane.paused:
                    consumer.pause(partition)
                    lane.paused = True

    # Lanes

    def is_handling(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether it is this task that calls the handlers of a partition."""
        return any(lane.task is task for lane in self._lanes.values())

    def _open(self, partition: TopicPartition, start: int | None) -> None:
        if self._ending:
            return
        lane = _Lane(partition, done=CompletedOffsets(start), committed=None)
        lane.task = asyncio.ensure_future(self._work(lane))
        self._lanes[partition] = lane

    async def _work(self, lane: _Lane) -> None:
        try:
            while True:
                while lane.waiting and not lane.closing:
                    done, record = lane.waiting.popleft()
                    sent = await self._handle(lane, record)
                    if self._parts.hooks.stepped:
                        await asyncio.wait([asyncio.gather(*sent, return_exceptions=True)])
                        await self._parts.hooks.reached("after-send", lane.partition, record.offset)
                    self._finish(lane, done, record, sent)
                    if len(lane.sending) >= HIGH_WATER:
                        await asyncio.wait(lane.sending, return_when=asyncio.FIRST_COMPLETED)
                    if lane.paused and len(lane.waiting) <= LOW_WATER:
                        self._resume(lane)
                if lane.closing:
                    return
                lane.arrived.clear()
                await lane.arrived.wait()
        except _GivenUp:
            return
        except Exception as problem:  # noqa: BLE001 - the lane's top loop: the worker raises it
            self._fail(problem)

    def _finish(self, lane: _Lane, done: CompletedOffsets, record: Record, sent: list["asyncio.Future[Any]"]) -> None:
        """The record is done once all it sent is acknowledged; the next one does not wait for that."""
        if not sent:
            done.finish(record.offset)
            self.progress.set()
            return
        acknowledged = asyncio.gather(*sent)
        lane.sending.add(acknowledged)

        def settle(outcome: "asyncio.Future[Any]") -> None:
            lane.sending.discard(outcome)
            if outcome.cancelled():
                return
            if (problem := outcome.exception()) is None:
                done.finish(record.offset)
                self.progress.set()
                return
            where = f"{record.topic}-{record.partition} offset {record.offset}"
            failed = HandlerFailed(f"what was sent for {where} was not acknowledged, so it is handled again: {problem}")
            failed.__cause__ = problem
            self._fail(failed)

        acknowledged.add_done_callback(settle)

    def _resume(self, lane: _Lane) -> None:
        lane.paused = False
        if self._consumer is not None and lane.partition in self._consumer.assignment():
            self._consumer.resume(lane.partition)

    def _fail(self, problem: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(problem)
            self._failed.exception()  # a worker that is ending already raises nothing more

    async def _rest(self, lane: _Lane, wait_s: float) -> None:
        """Wait before the next attempt, unless the partition goes meanwhile: its next owner begins with this record."""
        if lane.closing:
            raise _GivenUp
        lane.resting = True
        await self._parts.sleep(wait_s)
        lane.resting = False

    async def _handle(self, lane: _Lane, record: Record) -> list["asyncio.Future[Any]"]:
        """Every handler of the topic gets the record, whatever became of it with another; what they sent without waiting."""
        routes = self._routes[record.topic]
        sent: list[asyncio.Future[Any]] = []
        try:
            typed = await self._decode(lane, record)
        except Undecodable as problem:
            where = f"{record.topic}-{record.partition} offset {record.offset}"
            if not all(route.dead_letter for route, _ in routes):
                raise HandlerFailed(f"{where} cannot be read: {problem}") from problem
            log.error("%s cannot be read; to the dead letters: %s", where, problem)
            await self._bury(lane, record, problem, attempts=1, handler="")
            return sent
        returned = [await self._call(lane, route, call, record, typed, sent) for route, call in routes]
        self.handled += all(returned)
        return sent

    async def _decode(self, lane: _Lane, record: Record) -> ConsumerRecord[Any, Any]:
        """Bytes that cannot be read are a poison record; a registry that cannot be asked is waited for."""
        wait_s = 0.2
        while True:
            try:
                return await self._parts.decode(record)
            except BuswayError as problem:
                log.warning("%s-%d waits at offset %d: %s", record.topic, record.partition, record.offset, problem)
            await self._rest(lane, wait_s)
            wait_s = min(wait_s * 2, 10.0)

    async def _call(
        self,
        lane: _Lane,
        route: Route,
        call: Call,
        record: Record,
        typed: ConsumerRecord[Any, Any],
        sent: list["asyncio.Future[Any]"],
    ) -> bool:
        """Whether the handler returned in the end; else the record is among the dead letters."""
        attempt = 1
        while True:
            # What a failed attempt sent is not waited for: the next attempt, or the dead letter, stands for the record.
            mine: list[asyncio.Future[Any]] = []
            unacknowledged.set(mine)
            if self._parts.hooks.stepped:
                await self._parts.hooks.reached("before-handler", lane.partition, record.offset)
            started = time.perf_counter()
            try:
                await _uncancelled(call(typed))
            except Exception as problem:
                wait_s = route.retry.wait_s(problem, attempt)
                outcome: Outcome = "dead_lettered" if wait_s is None else "retried"
                self._tell(route, record, outcome, started, attempt, problem)
                where = f"{route.name} failed on {record.topic}-{record.partition} offset {record.offset}"
                if wait_s is None:
                    if not route.dead_letter:
                        raise HandlerFailed(f"{where} after {attempt} attempts: {problem!r}") from problem
                    log.error("%s after %d attempts; to the dead letters: %r", where, attempt, problem)
                    await self._bury(lane, record, problem, attempts=attempt, handler=route.name)
                    return False
                log.warning("%s, attempt %d; again in %.1f s: %r", where, attempt, wait_s, problem)
                await self._rest(lane, wait_s)
                attempt += 1
            else:
                self._tell(route, record, "handled", started, attempt, None)
                if self._parts.hooks.stepped:
                    await self._parts.hooks.reached("after-handler", lane.partition, record.offset)
                sent += mine
                return True

    def _tell(
        self,
        route: Route,
        record: Record,
        outcome: Outcome,
        started: float,
        attempt: int,
        problem: Exception | None,
    ) -> None:
        if not self._parts.hooks.watched:
            return
        self._parts.hooks.finished(
            Handling(
                route=route,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                records=1,
                outcome=outcome,
                seconds=time.perf_counter() - started,
                attempt=attempt,
                problem=problem,
            )
        )

    async def _bury(self, lane: _Lane, record: Record, problem: Exception, *, attempts: int, handler: str) -> None:
        """To the dead-letter topic as it came; waits for as long as that is out of reach, because nothing is skipped."""
        topic = dead_letter_topic(record.topic, self._parts.group)
        unacknowledged.set(None)
        reasons = dead_letter_headers(problem, record, group=self._parts.group, attempts=attempts, handler=handler)
        wait_s = 0.2
        while True:
            try:
                await self._parts.send_raw(topic, record.value, record.key, [*record.headers, *reasons])
            except BuswayError as unreachable:
                if is_too_large(unreachable) and (fewer := without_long_ones(reasons)) != reasons:
                    reasons = fewer
                    continue
                log.error(
                    "%s-%d stops at offset %d: %s: %s",
                    record.topic,
                    record.partition,
                    record.offset,
                    topic,
                    unreachable,
                )
            else:
                self.dead_lettered += 1
                return
            await self._rest(lane, wait_s)
            wait_s = min(wait_s * 2, 10.0)

    # Commits

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._parts.commit_interval_s)
            await self._commit(list(self._lanes.values()))

    async def _commit(self, lanes: Sequence[_Lane]) -> None:
        """One at a time, so that a slow commit never comes after a later one."""
        async with self._committing:
            await self._commit_now(lanes)

    async def _commit_now(self, lanes: Sequence[_Lane]) -> None:
        assert self._consumer is not None
        offsets = {
            lane.partition: lane.done.committable
            for lane in lanes
            if lane.done.committable is not None and lane.done.committable != lane.committed
        }
        if not offsets:
            return
        first = {lane.partition: lane.done.first if lane.committed is None else lane.committed for lane in lanes}
        await self._step("before-commit", {partition: first[partition] for partition in offsets})
        try:
            await self._consumer.commit(offsets)
        except CommitFailed as problem:
            log.warning("the group has moved on; what was handled will be handled again: %s", problem)
            return
        except BuswayError as problem:
            log.warning("offsets were not committed, the next commit brings them: %s", problem)
            return
        for lane in lanes:
            if lane.partition in offsets:
                lane.committed = offsets[lane.partition]
        await self._parts.hooks.committed(offsets)
        await self._step("after-commit", {partition: first[partition] for partition in offsets})

    async def _step(self, point: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._parts.hooks.stepped:
            for partition, offset in offsets.items():
                await self._parts.hooks.reached(point, partition, offset)

    def positions(self) -> dict[TopicPartition, int]:
        """For each partition the offset behind the last record that is finished with all before it; those without are missing."""
        return {
            partition: lane.done.committable
            for partition, lane in self._lanes.items()
            if lane.done.committable is not None
        }

    # Rebalances

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Open a lane for each new partition, after the service has loaded what it keeps for them."""
        assert self._consumer is not None
        try:
            offsets = await self._parts.hooks.assigned(sorted(assigned))
            await self._parts.on_assigned(sorted(assigned))
        except Exception as problem:  # noqa: BLE001 - the user's code; the worker raises it
            self._fail(problem)
            return
        for partition in assigned:
            if partition in offsets:
                self._consumer.seek(partition, offsets[partition])
            self._open(partition, offsets.get(partition))
        self.progress.set()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Let running handlers end, commit, close the lanes."""
        await self._close(revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Others have the partitions already: stop."""
        async with self._closing:
            lanes = [lane for partition in lost if (lane := self._lanes.pop(partition, None)) is not None]
            for lane in lanes:
                lane.closing = True
            await self._cancel([lane.task for lane in lanes if lane.task is not None])
            await self._gone(lanes)
        self.progress.set()

    async def _gone(self, lanes: Sequence[_Lane]) -> None:
        if not lanes:
            return
        try:
            await self._parts.hooks.revoked(sorted(lane.partition for lane in lanes))
        except BuswayError as problem:
            self._fail(problem)

    async def _cancel(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, deaf = await asyncio.wait(tasks, timeout=self._parts.drain_timeout_s)
            if deaf:
                log.error("%d handlers go on although they were cancelled", len(deaf))

    async def _close(self, partitions: Any) -> None:
        """Who comes while partitions are being closed waits until they are."""
        async with self._closing:
            await self._close_now(partitions)
        self.progress.set()

    async def _close_now(self, partitions: Any) -> None:
        lanes = [lane for partition in partitions if (lane := self._lanes.pop(partition, None)) is not None]
        if not lanes:
            return
        for lane in lanes:
            lane.closing = True
            lane.arrived.set()
        await self._cancel([lane.task for lane in lanes if lane.task is not None and lane.resting])
        tasks = [lane.task for lane in lanes if lane.task is not None]
        _, late = await asyncio.wait(tasks, timeout=self._parts.drain_timeout_s)
        if late:
            log.warning(
                "%d handlers did not end within %g s; their records come again",
                len(late),
                self._parts.drain_timeout_s,
            )
            await self._cancel(list(late))
        if sending := [one for lane in lanes for one in lane.sending]:
            await asyncio.wait(sending, timeout=self._parts.drain_timeout_s)
        try:
            await self._commit(lanes)
        except BuswayError as problem:
            self._fail(problem)
        await self._gone(lanes)


async def _uncancelled(call: Awaitable[Any]) -> None:
    """A handler that waited for something cancelled has failed; only this task's own cancellation goes through."""
    try:
        await call
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Cancelled("the handler waited for a task that was cancelled") from cancelled
