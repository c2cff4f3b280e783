"""Killing an app under test at a named step, as a process is killed.

What lives here: waiting for the step, letting go of everything without a word to anyone. What does not: starting again (`bus`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from busway.admin.admin import Admin
from busway.app.application import Application
from busway.app.extending.extension import CRASH_POINTS, Extension, Handling
from busway.app.service import RunningService
from busway.errors import NotRunning
from busway.types import TopicPartition

if TYPE_CHECKING:
    from busway.testing.clock import Clock

REACH_S: Final = 20.0


def crash_points(*only: str) -> tuple[str, ...]:
    """The steps at which `TestBus.crash` can kill, all or some of them, for `pytest.mark.parametrize`.

    Raises:
        ValueError: there is no such step.
    """
    for name in only:
        if name not in CRASH_POINTS:
            raise ValueError(f"no crash point {name!r}; there are {', '.join(CRASH_POINTS)}")
    return only or CRASH_POINTS


class Probe(Extension):
    """What a test bus knows of its app: whether partitions came, and the step at which the app is to be killed."""

    def __init__(self, clock: "Clock", app: Application) -> None:
        self.came = asyncio.Event()
        """Set when partitions were assigned since the app started last."""
        self.point: str | None = None
        self.at: str | None = None
        """Where the app was killed."""
        self.killing: asyncio.Task[None] | None = None
        self.fallen = asyncio.Event()
        """Set when the app has been reached by its end."""
        self._clock = clock
        self._app = app
        self._blocked: set[asyncio.Task[object]] = set()
        self._ending = False
        self._member = ""
        self._ids: list[str] = []

    async def starting(self, app: RunningService) -> None:
        """The app starts, or starts again."""
        self.at, self._ending = None, False
        self.came.clear()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Partitions came, and the other extensions have what they need for them."""
        self.came.set()
        return {}

    def finished(self, handling: Handling) -> None:
        """The app has done something; what is tried again does the next thing by itself: it waits, or calls the handler."""
        if handling.outcome != "retried":
            self._clock.stir()

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """Where the app is to be killed, it goes no further."""
        if self.at is None:
            if point != self.point:
                return
            self.at = f"{point} of {topic}-{partition} offset {offset}"
            self._cut()
        task = asyncio.current_task()
        assert task is not None
        self._blocked.add(task)
        if self._ending:
            task.cancel()  # it waited its turn behind one that has been ended
        await asyncio.Event().wait()

    def arm(self, point: str) -> None:
        """Kill the app when it reaches that step next."""
        crash_points(point)
        assert self.point is None, f"the app is to be killed at {self.point} already"
        self.point, self.at = point, None
        self.fallen.clear()
        self.killing = None

    def _cut(self) -> None:
        """Nothing leaves the app any more, from this moment on."""
        app = self._app
        assert app.worker is not None
        self._member = app.worker.consumer.member_id()
        app.worker.consumer.cut()
        self._ids = [name for one in app.producers if (name := one.options.transactional_id) is not None]
        for producer in app.producers:
            producer.cut()
        self.killing = asyncio.ensure_future(self._kill())
        self.fallen.set()

    async def _kill(self) -> None:
        """End the app without draining, flushing, committing or leaving its group; the group is told by an administrator's call.

        Handlers are cancelled where they wait, which is the nearest that a coroutine can come to being killed; one that runs in a
        thread runs to its end there. Extensions are stopped after the connections are gone, so they save nothing.
        """
        app = self._app
        assert app.worker is not None
        worker, consumer = app.worker, app.worker.consumer
        losing = asyncio.ensure_future(worker.on_partitions_lost(tuple(consumer.assignment())))
        await asyncio.sleep(0)  # it comes before what ends because its step was cancelled
        self._ending = True
        for task in self._blocked:
            task.cancel()
        self._blocked.clear()
        await losing
        await consumer.abort()
        for producer in app.producers:
            await producer.abort()
        await app.stop()
        self.point = None
        if self._member:
            # A killed process would be waited for until its session times out; the bus takes it out, as an administrator can.
            async with Admin(app.bootstrap_servers) as admin:
                await admin.remove_members(app.group_id, [self._member])
                for name in self._ids:  # and what it left open until its timeout
                    await admin.abort_transaction(name)

    async def came_or_stopped(self) -> None:
        """Returns when the app has been given partitions, or has stopped by itself, as whoever waits for it will hear.

        Raises:
            AssertionError: neither happened in time.
        """
        if self._app.worker is not None:
            await _either(self.came, self._app, f"app {self._app.name} was given no partitions")

    async def ready(self) -> None:
        """Returns when the app has been given partitions.

        Raises:
            Exception: it stopped by itself, for this reason.
            AssertionError: that did not happen in time.
        """
        if self._app.worker is not None:
            await first_of(self.came, self._app, f"app {self._app.name} was given no partitions")


async def first_of(event: asyncio.Event, app: Application, otherwise: str) -> None:
    """Returns when the event is set.

    Raises:
        Exception: the app stopped by itself before, for this reason.
        AssertionError: neither happened in time.
    """
    if not await _either(event, app, otherwise):
        await app.wait()
        raise NotRunning(f"app {app.name} was stopped")


async def _either(event: asyncio.Event, app: Application, otherwise: str) -> bool:
    waits = [asyncio.ensure_future(one) for one in (event.wait(), app.wait())]
    try:
        done, _ = await asyncio.wait(waits, timeout=REACH_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    assert done, f"{otherwise} within {REACH_S:g} s"
    return event.is_set()
