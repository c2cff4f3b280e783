"""The parts of a demo as processes: the bus, the registry, services, whatever else prints a line when it is ready.

Here: starting, killing, starting again, ending.
Not here: what they do, when they are killed (`faults`). Each part writes its errors to a log in the demo's folder and
has the first line of its output read, which tells its address.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from busway.cli.nodes import files_of, prepare, settings_of

START_S: Final = 30.0
"""How long a part may take to say that it is ready."""
END_S: Final = 20.0
"""How long it may take to end; then it is killed."""
CASES: Final = Path(__file__).resolve().parent.parent
BUSWAY: Final = (sys.executable, "-m", "busway.cli")
_TAIL: Final = 2000


class DemoFailed(Exception):
    """A part did not start or did not get on; the text holds the end of what it printed."""


@dataclass(slots=True)
class Part:
    """A process that can be started again.

    Attributes:
        name: in messages and of its log.
        command: with its arguments.
        environment: of the process.
        log: what it writes to standard error.
        process: the running one.
        kills: how often it was killed.
        restarting: it was killed to be started again, and has not said yet that it is ready.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    process: asyncio.subprocess.Process
    kills: int = 0
    restarting: bool = False

    async def line(self) -> str:
        """Its next line of output.

        Raises:
            DemoFailed: it ended, or said nothing for too long.
        """
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise DemoFailed(f"{self.name} said nothing for {START_S:.0f} s:\n{self.tail()}") from None
        if not line:
            raise DemoFailed(f"{self.name} ended at once:\n{self.tail()}")
        return line.decode().strip()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_TAIL:]

    def check(self) -> None:
        """Whether it still runs, or is about to again.

        Raises:
            DemoFailed: it ended by itself.
        """
        if self.process.returncode is not None and not self.restarting:
            raise DemoFailed(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    async def start_again(self) -> None:
        """Start it as before, after it has ended."""
        self.process = await _start(self.command, self.environment, self.log)

    async def kill(self) -> None:
        """End it and its children without warning, as a power cut would; what it printed and was not read is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: see `_start`
        self.kills += 1
        await self.process.wait()

    async def kill_and_restart(self, away_s: float = 0.0) -> None:
        """A crash, and the next process at the same address on the same data; returns when that says it is ready.

        Args:
            away_s: between the two.

        Raises:
            DemoFailed: it does not start again.
        """
        self.restarting = True
        try:
            await self.kill()
            await asyncio.sleep(away_s)
            await self.start_again()
            await self.line()
        finally:
            self.restarting = False

    async def end(self, number: signal.Signals = signal.SIGINT, hurry: asyncio.Event | None = None) -> None:
        """Send a signal and wait for the end; kill it after `END_S`, or once `hurry` is set."""
        if self.process.returncode is not None:
            return
        self.process.send_signal(number)
        ended = asyncio.ensure_future(self.process.wait())
        asked = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        try:
            await asyncio.wait([ended, asked], timeout=END_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if not ended.done():
            await self.kill()
        await ended


class Parts:
    """All parts of a demo; `async with` ends them, the last one first.

    Args:
        folder: for logs and data.
        environment: of every part, beside this process's own.
        hurry: parts that are to end are killed once it is set.

    Attributes:
        bus, registry: there once `start_bus` has returned.
        nodes: there once `start_nodes` has returned.
        bootstrap_servers, schema_registry: their addresses.
    """

    bus: Part
    registry: Part

    def __init__(
        self, folder: Path, environment: dict[str, str] | None = None, *, hurry: asyncio.Event | None = None
    ) -> None:
        self.folder = folder
        self.nodes: list[Part] = []
        self._hurry = hurry
        self._held = contextlib.ExitStack()
        self.environment = {**os.environ, **(environment or {})}
        self.parts: list[Part] = []
        self.bootstrap_servers = self.schema_registry = ""

    async def __aenter__(self) -> "Parts":
        return self

    async def __aexit__(self, *problem: object) -> None:
        with self._held:
            for part in reversed(self.parts):
                await part.end(hurry=self._hurry)

    async def start(self, name: str, *command: str, **environment: str) -> Part:
        """Start a part; what it writes to standard error goes to a log of its own."""
        log = self.folder / f"{name}.log"
        part_environment = {**self.environment, **environment}
        part = Part(name, command, part_environment, log, await _start(command, part_environment, log))
        self.parts.append(part)
        return part

    async def start_bus(self, *more: str) -> None:
        """A broker and a registry, each a process of its own with its port and its data in the folder, so that each can be killed alone;
        parts that are started later find them in their environment.

        Args:
            more: settings of the broker, `name=value`.

        Raises:
            DemoFailed: one did not start.
        """
        settings = (
            f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", f"log.dirs={self.folder / 'bus'}", "group.initial.rebalance.delay.ms=0",
            *more,
        )  # fmt: skip
        options = [option for setting in settings for option in ("--override", setting)]
        self.bus = await self.start("bus", *BUSWAY, "broker", *options, "--json")
        await self._start_registry()
        self.bootstrap_servers = json.loads(await self.bus.line())["bootstrap_servers"]
        await self._started()

    async def start_nodes(self, count: int) -> None:
        """As `start_bus`, with a cluster: each node a broker and a voter, a process of its own.

        Raises:
            DemoFailed: one did not start.
        """
        from busway_bus import cli_entry as bus

        folder = self.folder / "nodes"
        folder.mkdir()
        files = files_of(folder, count)
        ports, controller_ports = ([self._hold() for _ in files] for _ in range(2))
        overrides = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
        settings = settings_of(
            files, host="127.0.0.1", ports=ports, controller_ports=controller_ports, overrides=overrides
        )
        prepare(bus, files, settings)
        for node in files:
            command = (*BUSWAY, "broker", "--config", str(node.properties), "--json")
            self.nodes.append(await self.start(f"node-{node.node_id}", *command))
        await self._start_registry()
        self.bootstrap_servers = ",".join([json.loads(await node.line())["bootstrap_servers"] for node in self.nodes])
        await self._started()

    def _hold(self) -> int:
        """A port that no other process gets."""
        from busway_bus.cli_entry import HeldPort

        port = HeldPort()
        self._held.callback(port.release)
        return port.number

    async def _start_registry(self) -> None:
        database = f"sqlite+aiosqlite:///{self.folder / 'registry.db'}"
        self.registry = await self.start(
            "registry", *BUSWAY, "registry", "--database", database, "--port", str(free_port()), "--json"
        )

    async def _started(self) -> None:
        self.schema_registry = json.loads(await self.registry.line())["schema_registry"]
        self.environment["BUSWAY_BOOTSTRAP_SERVERS"] = self.bootstrap_servers
        self.environment["BUSWAY_SCHEMA_REGISTRY"] = self.schema_registry

    async def start_app(self, name: str, app: str, *options: str, **environment: str) -> Part:
        """`busway run APP`; `app` is `module:name`, seen from the folder of the case studies."""
        return await self.start(name, *BUSWAY, "run", app, "--log-level", "warning", *options, **environment)


async def _start(command: tuple[str, ...], environment: dict[str, str], log: Path) -> asyncio.subprocess.Process:
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            cwd=CASES,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends the parts in order
        )


def free_port(wanted: int = 0) -> int:
    """`wanted` if it is free on the loopback address, else a port that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoFailed("no port is free")


def on_signals(stop: Callable[[], object], *numbers: signal.Signals) -> None:
    """Call `stop` when one of the signals comes: parts are processes of their own and would stay if the demo just ended."""
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stop)
