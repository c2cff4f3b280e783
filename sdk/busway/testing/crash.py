"""Killing an app under test at a named step, as a process is killed.

Here: waiting for the step, dropping everything without notice to peers.
Not here: restarting (`bus`).
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
    """Return steps for `TestBus.crash`, all or only those named, for `pytest.mark.parametrize`.

    Raises:
        ValueError: no such step.
    """
    for name in only:
        if name not in CRASH_POINTS:
            raise ValueError(f"no crash point {name!r}; there are {', '.join(CRASH_POINTS)}")
    return only or CRASH_POINTS


class Probe(Extension):
    def __init__(self, clock: "Clock", app: Application) -> None:
        self.came: asyncio.Event = asyncio.Event()
        """Set once partitions were assigned since the last start."""
        self.point: str | None = None
        self.at: str | None = None
        self.killing: asyncio.Task[None] | None = None
        self.fallen: asyncio.Event = asyncio.Event()
        self._clock = clock
        self._app = app
        self._blocked: set[asyncio.Task[object]] = set()
        self._ending = False
        self._member = ""
        self._ids: list[str] = []

    async def starting(self, app: RunningService) -> None:
        self.at, self._ending = None, False
        self.came.clear()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.came.set()
        return {}

    def finished(self, handling: Handling) -> None:
        if handling.outcome != "retried":
            self._clock.note_activity()

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """Kill the app at the armed step; block every step after it."""
        if self.at is None:
            if point != self.point:
                return
            self.at = f"{point} of {topic}-{partition} offset {offset}"
            self._cut()
        task = asyncio.current_task()
        assert task is not None
        self._blocked.add(task)
        if self._ending:
            task.cancel()  # it waited behind a cancelled task
        await asyncio.Event().wait()

    def arm(self, point: str) -> None:
        crash_points(point)
        assert self.point is None, f"the app is to be killed at {self.point} already"
        self.point, self.at = point, None
        self.fallen.clear()
        self.killing = None

    def _cut(self) -> None:
        app = self._app
        assert app.worker is not None
        self._member = app.worker.consumer.member_id()
        app.worker.consumer.cut()
        self._ids = [name for producer in app.producers if (name := producer.options.transactional_id) is not None]
        for producer in app.producers:
            producer.cut()
        self.killing = asyncio.ensure_future(self._kill())
        self.fallen.set()

    async def _kill(self) -> None:
        """End the app without draining, flushing, committing or leaving its group.

        Handlers are cancelled where they wait; one in a thread runs to its end. Extensions are stopped after the
        connections are gone, so they save nothing.
        """
        app = self._app
        assert app.worker is not None
        worker, consumer = app.worker, app.worker.consumer
        losing = asyncio.ensure_future(worker.on_partitions_lost(tuple(consumer.assignment())))
        await asyncio.sleep(0)  # partitions are lost before the blocked tasks are cancelled
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
            # Otherwise the group would wait for the session timeout.
            async with Admin(app.bootstrap_servers, security=app.security) as admin:
                await admin.remove_members(app.group_id, [self._member])
                for name in self._ids:  # likewise for the transaction timeout
                    await admin.abort_transaction(name)

    async def assigned_or_stopped(self) -> None:
        """Wait until the app has partitions, or has stopped. `App.wait` raises the reason.

        Raises:
            AssertionError: neither happened in time.
        """
        if self._app.worker is not None:
            await _either(self.came, self._app, f"app {self._app.name} was given no partitions")

    async def ready(self) -> None:
        if self._app.worker is not None:
            await first_of(self.came, self._app, f"app {self._app.name} was given no partitions")


async def first_of(event: asyncio.Event, app: Application, otherwise: str) -> None:
    """Wait until the event is set; raise why the app stopped before, or `AssertionError` if late."""
    if not await _either(event, app, otherwise):
        await app.wait()
        raise NotRunning(f"app {app.name} was stopped")


async def _either(event: asyncio.Event, app: Application, otherwise: str) -> bool:
    waits = [asyncio.ensure_future(wait) for wait in (event.wait(), app.wait())]
    try:
        done, _ = await asyncio.wait(waits, timeout=REACH_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    assert done, f"{otherwise} within {REACH_S:g} s"
    return event.is_set()
