"""A simulated machine and its processes.

Here: `Host`, `Process`, and the context variable of the running process.
Not here: the loop (`sim_loop`), sockets (`sim_network`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final
from uuid import UUID

from busway_protocol.machine import Machine

EPOCH_MS: Final = 1_767_225_600_000
"""Every host's wall clock at virtual time 0: 2026-01-01 UTC."""
_TASKS_PRUNED_AT: Final = 256


class Crashed(Exception):
    """The process ended before this was finished."""


class Host:
    """One simulated machine; its state survives its processes.

    Attributes:
        slowness: factor for the duration of work in threads.
        waited_s: disk waits of the running code, to be added to its duration.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = True
        self.wall_offset_ms = 0
        self.slowness = 1.0
        self.waited_s = 0.0
        self.processes = 0


class Process:
    """One process with its callbacks.

    Attributes:
        machine: its clocks, ids and randomness.
        dead: they never run again.
        stopped: reasons why they do not run now; 0 if they do.
        frozen: a disk wait also stops it.
    """

    def __init__(self, host: Host, seed: object, now: Callable[[], float], reading: Callable[[], float]) -> None:
        host.processes += 1
        self.host = host
        self.number = host.processes
        self.name = host.name if self.number == 1 else f"{host.name}#{self.number}"
        self.ready: deque[Any] = deque()  # of `sim_tasks`, which import this module
        self.queued = False
        self.dead = False
        self.frozen = False
        self.stopped = 0
        self.stalled: list[Callable[[], None]] = []
        self.waiting: dict[asyncio.Future[Any], None] = {}
        """Futures of its work in other processes."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.tasks_made = 0
        ids = Random(f"{seed}/{self.name}/ids")  # noqa: S311 - a simulation can be run again
        self.machine = Machine(
            wall_ms=lambda: EPOCH_MS + host.wall_offset_ms + int(now() * 1000),
            monotonic_s=reading,
            uuid4=lambda: UUID(int=ids.getrandbits(128), version=4),
            chance=Random(f"{seed}/{self.name}/chance"),  # noqa: S311 - a simulation can be run again
        )
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task: finalisation of a crashed one would run its code."""
        self.tasks.append(task)
        if len(self.tasks) >= _TASKS_PRUNED_AT and not self.tasks_made % _TASKS_PRUNED_AT:
            self.tasks = [task for task in self.tasks if not task.done()]


PROCESS: Final[ContextVar[Process]] = ContextVar("busway_process")
