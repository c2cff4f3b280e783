"""A simulated machine and the processes on it.

What lives here: `Host` (a name, a disk, a wall clock), `Process`, whose callbacks run, wait or never run again, and the context variable
that says which one runs. What does not: the loop that runs them (`sim_loop`), their sockets (`sim_network`).
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
"""The wall clock of every host at virtual time 0: 2026-01-01 UTC."""
_TASKS_PRUNED_AT: Final = 256


class Crashed(Exception):
    """The process in which this ran has ended without finishing it."""


class Host:
    """One simulated machine; what is here outlives its processes.

    Attributes:
        up: whether it has power.
        wall_offset_ms: how far its wall clock is off.
        slowness: how many times longer than usual work in its threads takes.
        waited_s: how long code that runs now has waited for the disk; whoever runs it takes that as the time that it took.
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
    """One process: what is to run in it, and whether it does.

    Attributes:
        machine: its clocks, identifiers and chance.
        ready: callbacks that are to run, in order.
        dead, stopped: whether they never will, or not now.
        frozen: whether somebody froze it; it may be stopped because it waits for the disk, too.
    """

    def __init__(self, host: Host, seed: object, now: Callable[[], float], reading: Callable[[], float]) -> None:
        host.processes += 1
        self.host = host
        self.number = host.processes
        self.name = host.name if self.number == 1 else f"{host.name}#{self.number}"
        self.ready: deque[asyncio.Handle] = deque()
        self.queued = False
        self.dead = False
        self.frozen = False
        self.stopped = 0
        self.stalled: list[Callable[[], None]] = []
        self.waiting: dict[asyncio.Future[Any], None] = {}
        """What others wait for of it."""
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
        """Hold on to a task: what a crash leaves must not be finalised, as that would run its code."""
        self.tasks.append(task)
        if len(self.tasks) >= _TASKS_PRUNED_AT and not self.tasks_made % _TASKS_PRUNED_AT:
            self.tasks = [task for task in self.tasks if not task.done()]


PROCESS: Final[ContextVar[Process]] = ContextVar("busway_process")
"""Whose code runs."""
