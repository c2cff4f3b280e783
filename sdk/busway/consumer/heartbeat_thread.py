"""Showing a group that its member lives, whatever the reader's event loop is doing.

What lives here: `HeartbeatThread`, and the one thread of a process in which the hearts of all its consumers beat. What does not: what a beat
is (`heartbeat`, `heartbeat_modern`).

The thread has an event loop, connections and look-ups of its own. The two loops share nothing: what one tells the other is a call with
values that nobody changes, put on the other's queue; when the reader last polled is behind a lock (`heartbeat.PollTracker`). A simulated loop is
alone, and stands for the thread's as well.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from busway.cluster.client import ClusterClient
from busway.consumer.coordinator import Coordinator
from busway.consumer.heartbeat import PollTracker, Tell
from busway.errors import BuswayError
from busway.net.machine import has_threads


class _Thread:
    """An event loop in a daemon thread that is there while somebody uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # The thread, and whoever used it, are the parent's.
        self._lock = threading.Lock()
        self._users, self._loop = 0, None

    def enter(self) -> asyncio.AbstractEventLoop:
        """Use it, until `leave`."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="busway-hearts", daemon=True).start()
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """Use it no more; whoever is the last ends it."""
        with self._lock:
            self._users -= 1
            if not self._users and self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


_thread = _Thread()

Beating = Callable[[Coordinator, Tell], Coroutine[Any, Any, None]]
"""Shows a coordinator that the member lives, and tells what it says."""


class HeartbeatThread:
    """Beats in a thread beside the reader's event loop: a handler that computes for longer than a session costs no membership.

    The bound is max_poll_interval_ms: a reader that asks for nothing for so long leaves its group, and is told when it comes back.
    """

    def __init__(self, coordinator: Coordinator, connect: Callable[[], ClusterClient]) -> None:
        self.reader = PollTracker()
        self._group = coordinator.group
        self._connect = connect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_beside = True
        # What follows belongs to the thread.
        self._cluster: ClusterClient | None = None
        self._coordinator: Coordinator | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, beating: Beating, told: Callable[..., None]) -> None:
        """Beat like this from now on, and as before no more; `told` is called on the event loop that starts it."""
        here = asyncio.get_running_loop()

        def tell(*what: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the reader's event loop is closed: nobody is there to be told
                here.call_soon_threadsafe(told, *what)

        if self._loop is None:
            self._is_beside = has_threads()
            self._loop = _thread.enter() if self._is_beside else here
        self._loop.call_soon_threadsafe(self._begin, beating, tell)

    def call(self, function: Callable[..., None], *what: Any) -> None:
        """Call something that belongs to the thread, in the thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function, *what)

    def stop(self) -> None:
        """Beat no more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)

    def abort(self) -> None:
        """Beat no more and drop the connections, as when the process is killed."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._drop)

    async def close(self, last: Callable[[Coordinator], Awaitable[None]] | None = None) -> None:
        """Let go of everything; `last` is done before that if it ever beat, in the thread, on the connection of the beats."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if not self._is_beside:
            await self._close(last)
            return
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(last), loop))
        finally:
            _thread.leave()

    # In the thread

    def _begin(self, beating: Beating, tell: Tell) -> None:
        self._end()
        if self._coordinator is None:
            self._cluster = self._connect()
            self._coordinator = Coordinator(self._cluster, self._group, logging.DEBUG)  # the member itself logs it
        self._task = asyncio.get_running_loop().create_task(beating(self._coordinator, tell), name="busway-heart")

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _drop(self) -> None:
        self._end()
        if self._cluster is not None:
            self._cluster.abort()

    async def _close(self, last: Callable[[Coordinator], Awaitable[None]] | None) -> None:
        self._end()
        if self._task is not None:
            await asyncio.wait([self._task])
        try:
            if last is not None and self._coordinator is not None:
                await last(self._coordinator)
        finally:
            if self._cluster is not None:
                with contextlib.suppress(BuswayError):
                    await self._cluster.close()
            self._task = self._cluster = self._coordinator = None  # who starts again may get another event loop
