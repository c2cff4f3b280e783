"""Clusters under test: Busway's and Apache Kafka's nodes as processes, each with a relay before its clients' listener.

Here: settings, starting, signals.
Not here: faults (`faults`).
"""

import asyncio
import base64
import contextlib
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final

from tools.jars import kafka_libs, need

from tests.interop.client_faults.relay import Relay
from tests.support import class_archive
from tests.support.apache_kafka import QUICK, java_command
from tests.support.class_archive import JDK
from tests.support.patience import patient
from tests.support.programs import end_spawned, held_ports, spawn_async
from tests.support.waiting import until

START_S: Final = 300.0
STOP_S: Final = 60.0
SYSTEMS: Final = ("busway", "apache")
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "process.roles": "broker,controller",
    "transaction.state.log.num.partitions": "1",
}


def log4j() -> Path:
    """The logging configuration of JVMs: warnings on standard error."""
    file = kafka_libs() / "log4j2.properties"
    if not file.exists():
        java_command("kafka.Kafka")  # writes it
    return file


class Nodes:
    """The nodes of a cluster, in a temporary folder.

    Args:
        system: "busway" or "apache", whose jars are fetched.
        count: nodes, with the ids from 1 on; each broker and voter.
        settings: further ones, by Kafka's names.
    """

    def __init__(self, system: str, count: int, settings: dict[str, str] | None = None) -> None:
        self.system = system
        self._folder = Path(tempfile.mkdtemp(prefix="busway-faults-"))
        self._ports = {number: held_ports(3) for number in range(1, count + 1)}
        self.relays = {number: Relay(ports[0]) for number, ports in self._ports.items()}
        self._extra = settings or {}
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._paused: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{relay.port}" for relay in self.relays.values())

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._ports)

    def _file(self, node_id: int, name: str) -> Path:
        return self._folder / f"node-{node_id}{name}"

    def _write_settings(self) -> None:
        count = len(self._ports)
        replicas, in_sync = str(min(3, count)), "2" if count > 2 else "1"
        for number, (clients, brokers, controller) in self._ports.items():
            settings = {
                **_SETTINGS,
                "node.id": str(number),
                "controller.quorum.voters": ",".join(
                    f"{other}@127.0.0.1:{ports[2]}" for other, ports in self._ports.items()
                ),
                "listeners": f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{self.relays[number].port},BROKERS://127.0.0.1:{brokers}",
                "log.dirs": str(self._file(number, "")),
                "default.replication.factor": replicas,
                "min.insync.replicas": in_sync,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": in_sync,
                **({"broker.rack": str(number)} if count > 1 else {}),
                **self._extra,
            }
            text = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._file(number, ".properties").write_text(text, encoding="utf-8")

    async def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:])[:22].decode()
        for number in self._ports:
            file = str(self._file(number, ".properties"))
            if self.system == "apache":
                words = ["format", "-t", cluster_id, "-c", file]
                command = java_command("kafka.tools.StorageTool", *words)
            else:
                command = [sys.executable, "-m", "busway.cli", "cluster", "format", "-t", cluster_id, "-c", file]
            process = await spawn_async(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
            output, _ = await process.communicate()
            assert process.returncode == 0, output.decode()

    async def start(self, node_ids: Collection[int]) -> None:
        """Start these nodes at once, and wait until they serve."""
        for node_id in node_ids:
            await self.relays[node_id].accept()
        await asyncio.gather(*map(self._start, node_ids))

    async def _start(self, node_id: int) -> None:
        file, log = str(self._file(node_id, ".properties")), self._file(node_id, ".log")
        command = [sys.executable, "-m", "busway_bus", file]
        if self.system == "apache":
            tuned = ["-Xmx400m", "-XX:+UseSerialGC", *QUICK, *class_archive.using()]
            command = [need("java", JDK), *tuned, f"-Dlog4j2.configurationFile={log4j()}"]
            command += ["-cp", f"{kafka_libs()}/*", "kafka.Kafka", file]
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            process = await spawn_async(*command, stdout=output, stderr=output)
        self._running[node_id] = process
        word = b"Kafka Server started" if self.system == "apache" else b"serving "

        def started() -> bool:
            assert process.returncode is None, f"node {node_id} ended:\n{log.read_text()[-3000:]}"
            return word in log.read_bytes()[before:]

        try:
            await until(started, seconds=START_S, pause_s=0.05)
        except TimeoutError:
            raise AssertionError(f"node {node_id} did not start:\n{log.read_text()[-3000:]}") from None

    async def kill(self, node_id: int) -> None:
        process = self._running.pop(node_id)
        process.kill()
        self.relays[node_id].refuse()
        await process.wait()

    async def stop(self, node_id: int) -> None:
        """Stop a node cleanly: its partitions move to others first, if there are any."""
        process = self._running.pop(node_id)
        process.terminate()
        try:
            async with asyncio.timeout(patient(STOP_S)):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self.relays[node_id].refuse()

    def pause(self, node_id: int) -> None:
        self._running[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._running[node_id].send_signal(signal.SIGCONT)

    async def __aenter__(self) -> "Nodes":
        async with contextlib.AsyncExitStack() as stack:
            for relay in self.relays.values():
                await stack.enter_async_context(relay)
            self._relays = stack.pop_all()
        self._write_settings()
        try:
            await self._format()
            await self.start(self.node_ids)
        except BaseException:  # interrupted too: no process outlives the run
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_spawned()
        await self._relays.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)
