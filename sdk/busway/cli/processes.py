"""Child processes of a command: the workers of `busway run`, the nodes of `busway up`.

Here: starting and ending them, restarting workers.
Not here: their work (`running`), restarting nodes (`nodes`).

A worker has its own session, so Ctrl-C reaches only the supervisor, which forwards it once. A worker also drains and
ends when its supervisor dies: it holds the read end of a pipe whose other end only the supervisor has.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import typer

from busway.cli.logs import logs_json

logger = logging.getLogger("busway.cli")

WORKER: Final = "BUSWAY_WORKER"
"""Environment variable of a worker: its number, from 0."""
_LIFELINE: Final = "BUSWAY_LIFELINE"
CANNOT_START: Final = 78
"""A worker's exit code when a restart would fail, too (sysexits.h: EX_CONFIG)."""
STEADY_S: Final = 10.0
"""Uptime after which failures are counted from 1."""
MAX_FAILURES: Final = 10
"""Limit of consecutive failures; with the waits below reached after about 40 s."""
_LINE_BYTES_MAX: Final = 1024 * 1024
"""Longest line of a child's output."""
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    target: str
    http: str | None
    insecure: bool
    bootstrap: str | None
    registry_url: str | None
    log_level: str
    log_format: str = "text"
    wait_s: float = 0.0
    instance: str | None = None

    @property
    def arguments(self) -> list[str]:
        given = {"--http": self.http, "-b": self.bootstrap, "-r": self.registry_url, "--log-level": self.log_level}
        given["--instance"] = self.instance
        given["--log-format"] = self.log_format if self.log_format != "text" else None
        options = [part for name, value in given.items() if value is not None for part in (name, value)]
        options += ["--wait", str(self.wait_s)] if self.wait_s else []
        return ["run", self.target, *options, *(["--insecure"] if self.insecure else [])]


class Stopping:
    """Handler of SIGINT and SIGTERM. The first is forwarded to the children, the second kills them."""

    def __init__(self) -> None:
        self.asked: asyncio.Event = asyncio.Event()
        self.number: signal.Signals = signal.SIGTERM
        self._children: set[asyncio.subprocess.Process] = set()

    def __enter__(self) -> "Stopping":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signal, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _signal(self, number: signal.Signals) -> None:
        again = self.asked.is_set()
        self.number = number
        for child in self._children:
            _send(child, signal.SIGKILL if again else number)
        self.asked.set()

    def ask(self) -> None:
        if not self.asked.is_set():
            self._signal(signal.SIGTERM)

    async def run(
        self, arguments: Sequence[str], parent_pipe: int, worker: int | None = None, output: int | None = None
    ) -> "Child":
        """Run the `busway` command.

        Args:
            output: asyncio.subprocess.PIPE gives standard output and errors to the caller.
        """
        environment = {**os.environ, _LIFELINE: str(parent_pipe)}
        if worker is not None:
            environment[WORKER] = str(worker)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "busway.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else asyncio.subprocess.STDOUT,
            limit=_LINE_BYTES_MAX,
            env=environment,
            pass_fds=(parent_pipe,),
            start_new_session=True,
        )
        self._children.add(process)
        if self.asked.is_set():
            _send(process, self.number)
        return Child(process, self._children)


class Child:
    def __init__(self, process: asyncio.subprocess.Process, children: set[asyncio.subprocess.Process]) -> None:
        self._process = process
        self._children = children
        self.output = process.stdout
        """Standard output and errors, if the caller has them."""

    async def ended(self) -> int:
        code = await self._process.wait()
        self._children.discard(self._process)
        return code

    async def end(self) -> int:
        _send(self._process, signal.SIGTERM)
        return await self.ended()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


@contextlib.contextmanager
def parent_pipe() -> Iterator[int]:
    """Yield the pipe end for children. The other end closes when this process ends in any way."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


@contextlib.contextmanager
def end_with_parent() -> Iterator[None]:
    if (given := os.environ.pop(_LIFELINE, None)) is None:  # popped: not for child processes of the service
        yield
        return
    pipe = int(given)
    os.set_inheritable(pipe, False)
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pipe)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(pipe, gone)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


async def supervise(command: Command, workers: int) -> int:
    """Keep that many workers alive until a signal; then drain them.

    Returns:
        0 if all ended well, else 1.
    """
    with Stopping() as stopping, parent_pipe() as pipe:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_keep(command, number, stopping, pipe)) for number in range(workers)]
        return max(task.result() for task in tasks)


async def _keep(command: Command, number: int, stopping: Stopping, pipe: int) -> int:
    failures = 0
    loop = asyncio.get_running_loop()
    while True:
        started_s = loop.time()
        code = await (await stopping.run(command.arguments, pipe, number)).ended()
        if stopping.asked.is_set():
            return 0 if code == 0 else 1
        failures = 1 if loop.time() - started_s >= STEADY_S else failures + 1
        if code == CANNOT_START or failures >= MAX_FAILURES:
            tell(f"worker {number} {shown(code)}; the others are ended")
            stopping.ask()
            return 1
        wait_s = min(_FIRST_WAIT_S * 2 ** (failures - 1), _LONGEST_WAIT_S)
        tell(f"worker {number} {shown(code)}; again in {wait_s:.1f} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.asked.wait(), wait_s)
            return 0


def tell(text: str) -> None:
    """Write a line to standard error, in the format of logs."""
    if logs_json():
        logger.warning("%s", text)
    else:
        typer.echo(f"busway: {text}", err=True)


def shown(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
