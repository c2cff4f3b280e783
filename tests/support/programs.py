"""Programs that tests start: where they listen, and that none outlives its test.

Here: starting one so that it ends with the process that runs the tests, even where that is killed; ending one; ports
for programs that need one as an argument.
Not here: which programs.
"""

import asyncio
import contextlib
import ctypes
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from busway_bus.testing.ports import HeldPort
from tests.support.patience import patient

Self = TypeVar("Self", bound="Program")
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a program."""
_PR_SET_PDEATHSIG: Final = 1
_prctl: Final = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_held: Final[dict[int, HeldPort]] = {}
_spawned: Final[list[asyncio.subprocess.Process]] = []


def held_ports(count: int) -> list[int]:
    """Ports, one after the other, that are given to no other caller until the process that runs the tests ends."""
    while True:
        ports = [HeldPort()]
        try:
            ports += [HeldPort(ports[0].number + distance) for distance in range(1, count)]
        except (OSError, OverflowError):  # the next one is taken, or there is none
            continue
        _held.update((port.number, port) for port in ports)
        return [port.number for port in ports]


def release_ports(numbers: Sequence[int]) -> None:
    """For a program that does not share an address: let it have held ports now."""
    for number in numbers:
        _held.pop(number).release()


def end_with_tests() -> None:
    """Prepare the new process: signals do what they do by default, and the kernel kills it when the one that runs the tests is gone.

    A signal that is ignored or blocked stays so in a program that is started, and a job in a shell's background ignores SIGINT.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """As `subprocess.Popen`, but it ends with the process that runs the tests."""
    return subprocess.Popen(command, preexec_fn=end_with_tests, **options)  # noqa: PLW1509 - a few calls of the kernel, no lock


async def spawn_async(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """As `asyncio.create_subprocess_exec`, but it ends with the process that runs the tests; with the test, too, that uses the fixture
    `programs_end`."""
    process = await asyncio.create_subprocess_exec(*command, preexec_fn=end_with_tests, **options)
    _spawned.append(process)
    return process


def end(process: "subprocess.Popen[Any]", number: signal.Signals = signal.SIGTERM, *, within_s: float = 30) -> None:
    """Ask a program to end, and kill it where it does not."""
    process.send_signal(number)
    try:
        process.wait(patient(within_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def end_spawned() -> None:
    """Kill what the test started with `spawn_async` and did not see end, because it failed or took too long."""
    while _spawned:
        process = _spawned.pop()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Program(ABC):
    """A program with a folder of its own that runs while its context lasts; one that does not start is stopped, too.

    Args:
        name: begins the folder's.

    Attributes:
        ends_within_s: of being asked; then it is killed.
    """

    ends_within_s: float = 30

    def __init__(self, name: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it has started and was not stopped."""
        return self._process is not None

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """End it in order, if it has started; its folder stays until the end of the context."""
        process, self._process = self._process, None
        if process is not None:
            end(process, within_s=self.ends_within_s)

    def __enter__(self: Self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
