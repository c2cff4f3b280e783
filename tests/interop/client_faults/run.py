"""Clients side by side on one cluster through the same faults.

Here: their processes, the order of things, the table.
Not here: faults (`faults`), what the output says (`events`).
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.jars import kafka_libs

from busway import Admin, NewTopic
from busway.consumer.snapshot import read_to_end
from tests.conformance.java_program import command_of
from tests.interop.client_faults.events import PARTITIONS, Event, Row, Window, parse, rows
from tests.interop.client_faults.faults import Fault, Scene
from tests.interop.client_faults.systems import Nodes, log4j
from tests.support.apache_kafka import QUICK
from tests.support.patience import patient
from tests.support.programs import spawn_async
from tests.support.waiting import until

ROOT: Final = Path(__file__).resolve().parents[3]
CLIENTS: Final = ("busway", "librdkafka", "java")
PAUSE_MS: Final = 20
REQUEST_TIMEOUT_MS: Final = 5_000
_PROGRESS: Final = 15
"""Records of each partition that each client has written and read after a fault, before the next."""
_PROGRESS_S: Final = 90.0
_END_S: Final = 150.0


def _command(client: str) -> list[str]:
    if client == "java":
        java, *others = command_of(Path(__file__).parent / "java" / "FaultClient.java", kafka_libs())
        return [java, *QUICK, f"-Dlog4j2.configurationFile={log4j()}", *others]
    name = {"busway": "sdk_client", "librdkafka": "librdkafka_client"}[client]
    return [sys.executable, "-m", f"tests.interop.client_faults.{name}"]


@dataclass(slots=True, eq=False)
class Client:
    """A running client and its events so far."""

    name: str
    process: asyncio.subprocess.Process
    events: list[Event] = field(default_factory=list)
    following: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        return f"of-{self.name}"

    async def follow(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(parse(line.decode()))

    def count(self, kind: str, since_s: float) -> int:
        return sum(event.kind == kind and event.at_s >= since_s for event in self.events)

    def _least(self, kind: str, since_s: float) -> int:
        partitions = Counter(event.partition for event in self.events if event.kind == kind and event.at_s >= since_s)
        return min(partitions[partition] for partition in range(PARTITIONS))

    def has_progressed(self, since_s: float) -> bool:
        if self.following is not None and self.following.done():
            self.following.result()  # raises what a line of another kind caused
        return all(self._least(kind, since_s) >= _PROGRESS for kind in ("acknowledged", "read"))

    def has_read_all(self) -> bool:
        acknowledged, read = (
            {event.words[0] for event in self.events if event.kind == kind} for kind in ("acknowledged", "read")
        )
        return acknowledged <= read

    def order(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")


async def _start(name: str, command: Sequence[str], servers: str, protocol: str) -> Client:
    arguments = [
        servers,
        f"of-{name}",
        f"group-{name}",
        *map(str, (PARTITIONS, PAUSE_MS, REQUEST_TIMEOUT_MS)),
        protocol,
    ]
    process = await spawn_async(
        *command,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if os.environ.get("VERBOSE") else asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    client = Client(name, process)
    client.following = asyncio.ensure_future(client.follow())
    return client


async def run(
    system: str,
    count: int,
    faults: Sequence[Fault],
    *,
    clients: Sequence[str] = CLIENTS,
    protocol: str = "consumer",
    note: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Return a row for each client and fault."""
    commands = {name: _command(name) for name in clients}  # compiles Java's before the clock runs
    async with Nodes(system, count) as nodes:
        scene = Scene(nodes, [f"of-{name}" for name in clients])
        async with Admin(nodes.bootstrap_servers) as admin:
            replicas = min(3, count)
            await admin.create_topics([NewTopic(topic, PARTITIONS, replicas) for topic in scene.topics])
        running = [await _start(name, commands[name], nodes.bootstrap_servers, protocol) for name in clients]
        begin_s = time.monotonic()
        await _all_progress(running, begin_s, "start", note)
        windows = []
        for fault in faults:
            if fault.needs_nodes and count == 1:
                continue
            if count > 1:
                await scene.settled()
            victim = await scene.coordinator() if count > 1 else 1
            note(f"{system}, {count}: {fault.name} at node {victim}")
            fault_s = time.monotonic()
            await fault.apply(scene, victim)
            over_s = time.monotonic()
            await _all_progress(running, over_s, fault.name, note)
            windows.append(Window(fault=fault.name, begin_s=fault_s, end_s=time.monotonic()))
        await _end(running, note)
        result = []
        for client in running:
            log = [
                (record.value or b"").decode() async for record in read_to_end(nodes.bootstrap_servers, client.topic)
            ]
            result += rows(client.name, client.events, log, windows)
        return result


async def _all_progress(running: Sequence[Client], since_s: float, after: str, note: Callable[[str], None]) -> None:
    try:
        await until(lambda: all(client.has_progressed(since_s) for client in running), seconds=_PROGRESS_S)
    except TimeoutError:
        for client in running:
            if not client.has_progressed(since_s):
                counts = {kind: client.count(kind, since_s) for kind in ("acknowledged", "read", "failed", "ended")}
                note(f"{after}: no progress of {client.name} for {_PROGRESS_S:g} s: {counts}")


async def _end(running: Sequence[Client], note: Callable[[str], None]) -> None:
    for client in running:
        client.order()
    for what, reached in (
        ("did not finish writing", lambda client: client.count("done", 0.0) > 0),
        ("did not read all", Client.has_read_all),
    ):
        try:
            await until(lambda reached=reached: all(map(reached, running)), seconds=_END_S)
        except TimeoutError:
            note(f"{what}: {', '.join(client.name for client in running if not reached(client))}")
    for client in running:
        client.order()
    for client in running:
        try:
            async with asyncio.timeout(patient(30)):
                await client.process.wait()
        except TimeoutError:
            note(f"{client.name} did not end")
            client.process.kill()
        assert client.following is not None
        await client.following


def no_worse(table: Sequence[Row]) -> list[str]:
    """Return where the SDK is worse than the better of the others: counts, not stalls."""
    worse = []
    for fault in dict.fromkeys(row.fault for row in table):
        ours, *others = [next(row for row in table if (row.client, row.fault) == (name, fault)) for name in CLIENTS]
        for what in ("lost", "doubled", "read_again", "unread", "failed", "rebalances", "ended"):
            least = min(getattr(row, what) for row in others)
            if getattr(ours, what) > least:
                worse.append(f"{fault}: {what} {getattr(ours, what)}, the better of the others {least}")
    return worse
