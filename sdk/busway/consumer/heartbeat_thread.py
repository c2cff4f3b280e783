"""Heartbeats that continue while the reader's event loop is blocked.

Not here: the heartbeats (`heartbeat`, `heartbeat_modern`).

The thread has a separate event loop, connections and lookups. The loops share nothing: each queues calls with immutable
values on the other; the time of the last poll is behind a lock (`heartbeat.PollTracker`). A simulated loop also serves
as the thread's.
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
from busway.consumer.heartbeat import OnResponse, PollTracker
from busway.errors import BuswayError
from busway.net.machine import has_threads


class _Thread:
    """Event loop in a daemon thread, one per process, which runs while it has users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # The thread and its users belong to the parent process.
        self._lock = threading.Lock()
        self._users, self._loop = 0, None

    def enter(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="busway-heartbeats", daemon=True).start()
            self._users += 1
            return self._loop

    def leave(self) -> None:
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

HeartbeatLoop = Callable[[Coordinator, OnResponse], Coroutine[Any, Any, None]]


class HeartbeatThread:
    """Sender of heartbeats beside the reader's event loop.

    A handler that computes for longer than a session timeout stays a member; after max_poll_interval_ms without a poll,
    the member leaves until the next poll.
    """

    def __init__(self, coordinator: Coordinator, connect: Callable[[], ClusterClient]) -> None:
        self.reader: PollTracker = PollTracker()
        self._group = coordinator.group
        self._connect = connect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_own_loop = True
        # Used only in the thread.
        self._cluster: ClusterClient | None = None
        self._coordinator: Coordinator | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, heartbeat_loop: HeartbeatLoop, on_response: Callable[..., None]) -> None:
        """Replace the running heartbeats; `on_response` is called on the calling event loop."""
        here = asyncio.get_running_loop()

        def report(*what: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the reader's event loop is closed
                here.call_soon_threadsafe(on_response, *what)

        if self._loop is None:
            self._has_own_loop = has_threads()
            self._loop = _thread.enter() if self._has_own_loop else here
        self._loop.call_soon_threadsafe(self._begin, heartbeat_loop, report)

    def call(self, function: Callable[..., None], *what: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function, *what)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)

    def abort(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._drop)

    async def close(self, last: Callable[[Coordinator], Awaitable[None]] | None = None) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if not self._has_own_loop:
            await self._close(last)
            return
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(last), loop))
        finally:
            _thread.leave()

    # In the thread

    def _begin(self, heartbeat_loop: HeartbeatLoop, on_response: OnResponse) -> None:
        self._end()
        if self._coordinator is None:
            self._cluster = self._connect()
            self._coordinator = Coordinator(self._cluster, self._group, logging.DEBUG)  # the member itself logs it
        self._task = asyncio.get_running_loop().create_task(
            heartbeat_loop(self._coordinator, on_response), name="busway-heartbeat"
        )

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
            self._task = self._cluster = self._coordinator = None  # a restart may use another event loop
