"""A partition's way through one handler.

Here: tasks that take runnable records, wait between attempts, and end on revocation.
Not here: order (`schedule`), an attempt (`attempts`), feeding and commits (`worker`), batches (`batches`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.app.calling.depends import Current, current
from busway.app.calling.layers import Handler
from busway.app.handling.attempts import AttemptContext, Attempts, Sent
from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.schedule import Schedule
from busway.app.model.retry import HandlerFailed
from busway.app.model.topic import BATCH_MAX, OPEN_MAX_EXACTLY
from busway.types import TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")

OPEN_MAX: Final = BATCH_MAX
"""Unfinished records of a partition per handler: queued, parked or running; above, the partition is paused."""
SENDING_MAX: Final = 1000
"""Handled records of a partition whose sends are not acknowledged; above, its next record waits."""
TURN_S: Final = 0.005
"""Seconds without a wait after which a partition's handlers yield the event loop to heartbeats."""
Sleep = Callable[[float], Awaitable[None]]


class GivenUp(Exception):
    """The partition is revoked before its record could be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneContext:
    """Dependencies of a lane.

    Attributes:
        on_finished: called with handled records whose sends are acknowledged; not with exactly_once.
        on_failure: called with an error that stops the app.
    """

    attempts: AttemptContext
    sleep: Sleep
    on_finished: Callable[[Sequence[InFlightRecord]], None]
    on_failure: Callable[[Exception], None]


class Lane:
    """One handler's records of one partition."""

    def __init__(
        self, context: LaneContext, partition: TopicPartition, handler: Handler, *, buries_unreadable: bool
    ) -> None:
        route = handler.route
        self.partition = partition
        self.name: str = route.name
        self.schedule: Schedule[InFlightRecord] = Schedule(ordering=route.ordering, concurrency=route.concurrency)
        self.closing: bool = False
        self.exactly_once: bool = route.guarantee == "exactly_once"
        in_order = route.batch is not None or route.ordering == "partition"
        self.open_max = OPEN_MAX_EXACTLY if self.exactly_once and not in_order else OPEN_MAX
        self._context = context
        self._concurrency = route.concurrency
        self._attempts = Attempts(context.attempts, handler, buries_unreadable=buries_unreadable, rest=self.rest)
        self._tried: dict[InFlightRecord, int] = {}
        self._hands: set[asyncio.Task[None]] = set()
        self._resting: set[asyncio.Task[Any]] = set()
        self._sending: dict[asyncio.Future[Any], list[InFlightRecord]] = {}
        self._unacknowledged = 0
        self._acknowledged = asyncio.Event()
        """Set when fewer than `SENDING_MAX` are unacknowledged."""

    def add(self, items: Sequence[InFlightRecord]) -> None:
        for item in items:
            self.schedule.add(item.record.key, item)

    def pump(self) -> None:
        if self.closing:
            return
        idle = min(self._concurrency - len(self._hands), self.schedule.queued)
        for _ in range(idle):
            hand = asyncio.get_running_loop().create_task(self._work())
            self._hands.add(hand)
            hand.add_done_callback(self._hands.discard)

    async def _work(self) -> None:
        mark = Current()
        current.set(mark)
        clock = self._context.attempts.machine.monotonic_s
        turn = clock()
        try:
            while not self.closing and (runnable := self.schedule.next()) is not None:
                await self._handle(*runnable, mark)
                if (now := clock()) - turn > TURN_S:
                    await asyncio.sleep(0)
                    turn = now
        except GivenUp:
            return
        except Exception as problem:  # noqa: BLE001 - the lane's top loop: the worker raises it
            self._context.on_failure(problem)
        except BaseException as problem:
            if not self.closing:  # else `close` cancelled it
                where = f"{self.partition.topic}-{self.partition.partition}"
                self._context.on_failure(
                    HandlerFailed(f"{self._attempts.route.name} was ended on {where}: {problem!r}")
                )
            raise
        finally:
            me = asyncio.current_task()
            assert me is not None
            self._hands.discard(me)
            self._resting.discard(me)

    async def _handle(self, key: Hashable, item: InFlightRecord, mark: Current) -> None:
        attempts = self._attempts
        mark.key = item.record.key
        typed = item.typed or await attempts.read(item)
        sent: Sent = []
        if typed is not None:
            mark.attempt = self._tried.pop(item, 1) if self._tried else 1
            wait_s = await attempts.make(item, typed, mark, sent)
            if wait_s is not None:
                self._park(key, item, mark.attempt + 1, wait_s)
                return
            await attempts.acknowledged(item, sent)
        self.schedule.finish(key)
        if len(self._hands) < self._concurrency:
            self.pump()  # its key may have more
        self.finish([item], sent)
        await self._room()

    async def _room(self) -> None:
        if self.exactly_once:
            await self._attempts.room()
        else:
            while self._unacknowledged >= SENDING_MAX:
                self._acknowledged.clear()
                await self._acknowledged.wait()

    # Waiting

    def _park(self, key: Hashable, item: InFlightRecord, attempt: int, wait_s: float) -> None:
        if self.closing:
            raise GivenUp
        self._tried[item] = attempt
        self.schedule.park(key)
        waiting = asyncio.get_running_loop().create_task(self._come_back(key, item, wait_s))
        self._resting.add(waiting)
        waiting.add_done_callback(self._resting.discard)

    async def _come_back(self, key: Hashable, item: InFlightRecord, wait_s: float) -> None:
        await self._context.sleep(wait_s)
        self.schedule.due(key, item)
        self.pump()

    async def rest(self, wait_s: float) -> None:
        """Wait in place, blocking the handler; `GivenUp` if the partition is being revoked."""
        if self.closing:
            raise GivenUp
        me = asyncio.current_task()
        assert me is not None
        self._resting.add(me)
        await self._context.sleep(wait_s)
        self._resting.discard(me)

    # Finishing

    def finish(self, items: Sequence[InFlightRecord], sent: Sent) -> None:
        """Finish records once their sends are acknowledged, without delaying the next record."""
        if self.exactly_once:
            self._attempts.complete(items)
            return
        if not sent:
            self._context.on_finished(items)
            return
        acknowledged = sent[0] if len(sent) == 1 else asyncio.gather(*sent)
        self._unacknowledged += len(items)
        if (waiting := self._sending.get(acknowledged)) is not None:
            waiting.extend(items)
            return
        self._sending[acknowledged] = list(items)
        acknowledged.add_done_callback(self._settle)

    def _settle(self, outcome: "asyncio.Future[Any]") -> None:
        items = self._sending.pop(outcome)
        self._unacknowledged -= len(items)
        if self._unacknowledged < SENDING_MAX:
            self._acknowledged.set()
        if outcome.cancelled():
            return
        if (problem := outcome.exception()) is None:
            self._context.on_finished(items)
            return
        failed = HandlerFailed(
            f"what was sent for {items[0].where} was not acknowledged, so it is handled again: {problem}"
        )
        failed.__cause__ = problem
        self._context.on_failure(failed)

    # Ending

    def is_handling(self, task: "asyncio.Task[Any] | None") -> bool:
        return task in self._hands

    def close(self) -> "set[asyncio.Task[Any]]":
        self.closing = True
        for task in self._resting:
            task.cancel()
        return self._hands | self._resting

    @property
    def begun(self) -> int:
        """Records with the handler: running, parked, or with unacknowledged sends."""
        return self.schedule.running + self.schedule.parked + self._unacknowledged

    def sending(self) -> "set[asyncio.Future[Any]]":
        return set(self._sending)
