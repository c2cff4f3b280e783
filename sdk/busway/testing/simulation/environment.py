"""Clocks, chance and system calls of a simulated service: seeded or refused.

Here: `environment`, which patches them for a block.
Not here: loop, network and disk (`busway_bus.testing.world`).

Seeded: `time`, `datetime`, `uuid`, `random` and `os.urandom`. Not seeded: a `random.Random()` without a seed, the order
of a set of strings (PYTHONHASHSEED) or of objects hashed by identity. Files are the machine's.
"""

import contextlib
import os
import random
import socket
import sqlite3
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from busway.errors import BuswayError
from busway.net.machine import current_machine


class NotSimulated(BuswayError):
    """Raised for an operation that is not simulated; the text names it and an alternative."""


def _refusing(refused: Callable[[NotSimulated], None]) -> Callable[[str, str], Callable[..., NoReturn]]:
    def refusing(what: str, instead: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            problem = NotSimulated(f"{what} is not simulated, so that no seed would tell what happens; {instead}")
            refused(problem)
            raise problem

        return refuse

    return refusing


def _no_time(seconds: float, /) -> None:
    """Replace `time.sleep`: a sleeping thread takes no virtual time."""


@contextlib.contextmanager
def simulated_environment(seed: object, refused: Callable[[NotSimulated], None]) -> Iterator[None]:
    """Give simulated processes' code their machine's time and chance.

    Args:
        refused: called with each refusal, as the service may take the error for a failure of its handler.
    """
    import time_machine

    uuid.getnode()  # the first call starts a program; later calls use its cached result
    refusing = _refusing(refused)
    chance = random.Random(f"{seed}/outside")  # noqa: S311 - a simulation can be run again
    state = random.getstate()
    random.seed(f"{seed}/random")

    def monotonic() -> float:
        return current_machine().monotonic_s()

    def monotonic_ns() -> int:
        return int(current_machine().monotonic_s() * 1e9)

    def urandom(size: int, /) -> bytes:
        return chance.randbytes(size)

    stubs: dict[tuple[Any, str], Any] = {
        (time, "monotonic"): monotonic,
        (time, "monotonic_ns"): monotonic_ns,
        (time, "perf_counter"): monotonic,
        (time, "perf_counter_ns"): monotonic_ns,
        (time, "sleep"): _no_time,
        (os, "urandom"): urandom,
        (random, "_urandom"): urandom,
        (threading.Thread, "start"): refusing(
            "a thread", "use asyncio.to_thread or a plain function (def) as the handler, which run in the loop's order"
        ),
        (socket.socket, "connect"): refusing(
            "a socket of the system", "use asyncio's streams, or override the dependency"
        ),
        (socket.socket, "bind"): refusing(
            "a socket of the system", "use asyncio's servers, or override the dependency"
        ),
        (subprocess.Popen, "__init__"): refusing("a program", "override what starts it with what it would answer"),
        (sqlite3, "connect"): refusing("SQLite", "keep the state in a table of the app, or override the dependency"),
        (sqlite3.dbapi2, "connect"): refusing(
            "SQLite", "keep the state in a table of the app, or override the dependency"
        ),
    }
    before = {place: getattr(*place) for place in stubs}
    traveller = time_machine.travel(0, tick=False)
    now: Any = traveller.start()
    now.time_ns = lambda: current_machine().wall_ms() * 1_000_000
    try:
        for (owner, name), stub in stubs.items():
            setattr(owner, name, stub)
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)
        traveller.stop()
        random.setstate(state)
