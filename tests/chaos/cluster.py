"""Three or more nodes of one cluster, each a process with its own disk and network namespace.

Here: starting, signals, power cuts, the end.
Not here: which fault comes when (`faults`), nodes in the test's own process (`busway_bus.testing.local_nodes`).
"""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final

from busway_bus.formatting import random_cluster_id
from tests.chaos.disk import Disk, dropped
from tests.chaos.network import Network
from tests.chaos.systems import System
from tests.support.patience import patient
from tests.support.programs import end_spawned, spawn_async
from tests.support.waiting import until

START_S: Final = 60.0
STOP_S: Final = 60.0
PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "busway.insecure": "true",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "2000",
    "transaction.state.log.num.partitions": "3",
}
"""Short times, so that many faults fit into a run; small segments; no cleaner, so that replicas are equal byte for byte."""


class NodeEnded(Exception):
    """A node ended without a signal of this harness, or did not start."""


class NodeProcesses:
    """The processes of a cluster, in a temporary folder.

    Args:
        count: nodes, with the ids from 1 on; each broker and voter.
        system: what runs.

    Attributes:
        folder: deleted at the end of the context, unless `keep` is set.
        keep: leave the folder, for a look at what went wrong.
        network: between the nodes.
        unsynced: bytes of logs that power cuts dropped.
        starts_s: of each process, until it serves.
    """

    def __init__(self, count: int, system: System) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="busway-chaos-"))
        self.keep = False
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._paused: set[int] = set()
        self.node_ids = tuple(range(1, count + 1))
        self.network = Network(self.node_ids)
        self.unsynced = 0
        self.starts_s: list[float] = []
        self._system = system
        self._disks: dict[int, Disk] = {}

    async def _format(self) -> None:
        count, network = len(self.node_ids), self.network
        voters = ",".join(f"{number}@{network.address_of(number)}:{CONTROLLER_PORT}" for number in self.node_ids)
        replicas, in_sync = str(min(3, count)), "2" if count > 2 else "1"
        cluster_id = random_cluster_id()
        for number in self.node_ids:
            address = network.address_of(number)
            self._disks[number] = disk = Disk(self.folder / f"node-{number}.img", self.folder / f"node-{number}")
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "log.dirs": str(disk.data),
                "listeners": f"PLAINTEXT://{address}:{PORT},CONTROLLER://{address}:{CONTROLLER_PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": replicas,
                "min.insync.replicas": in_sync,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": in_sync,
                **SETTINGS,
            }
            text = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._properties_of(number).write_text(text, encoding="utf-8")
            await self._system.format(self._properties_of(number), settings, cluster_id)
            disk.sync()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, also of those that do not run."""
        return ",".join(f"{self.network.address_of(number)}:{PORT}" for number in self.node_ids)

    def data_of(self, node_id: int) -> Path:
        return self._disks[node_id].data

    def _properties_of(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.properties"

    def _log_of(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.log"

    async def start(self, node_ids: Collection[int]) -> None:
        """Start these nodes at once, and wait until they serve.

        Raises:
            NodeEnded: one did not start in time.
        """
        async with asyncio.TaskGroup() as starts:
            for node_id in node_ids:
                starts.create_task(self._start(node_id))

    async def _start(self, node_id: int) -> None:
        command = [*self.network.inside(node_id), *self._system.command(self._properties_of(node_id))]
        path, begin_s = self._log_of(node_id), time.monotonic()
        with path.open("ab") as log:
            begin = log.tell()
            process = await spawn_async(*command, stdout=log, stderr=log)
        self._running[node_id] = process

        def serves_or_ended() -> bool:
            return process.returncode is not None or self._system.serving in path.read_bytes()[begin:]

        try:
            await until(serves_or_ended, seconds=START_S, pause_s=0.05)
        except TimeoutError:
            raise NodeEnded(f"node {node_id} did not start; the end of its log:\n{self.log_end(node_id)}") from None
        self.check()
        self.starts_s.append(time.monotonic() - begin_s)

    def ended(self, node_id: int) -> bool:
        """Whether a node ended by itself; it may be started again."""
        return self._running[node_id].returncode is not None

    def check(self) -> None:
        """Raise NodeEnded for a node that ended by itself."""
        for node_id, process in self._running.items():
            if process.returncode is not None:
                raise NodeEnded(
                    f"node {node_id} ended by itself with {process.returncode}; the end of its log:\n{self.log_end(node_id)}"
                )

    async def lose_power(self, node_ids: Collection[int]) -> None:
        """Cut the power of all of these at once; their disks keep what was synced."""
        for node_id in node_ids:
            self.pause(node_id)
        before = {node_id: await asyncio.to_thread(self._disks[node_id].logs) for node_id in node_ids}
        for node_id in node_ids:
            self._disks[node_id].cut()
        await self.kill(node_ids)
        for node_id in node_ids:
            await asyncio.to_thread(self._disks[node_id].restore)
            self.unsynced += dropped(before[node_id], await asyncio.to_thread(self._disks[node_id].logs))

    def fill_disk(self, node_id: int) -> None:
        """Leave no space on a node's disk."""
        self._disks[node_id].fill()

    def free_disk(self, node_id: int) -> None:
        """Give the space back."""
        self._disks[node_id].free()

    async def kill(self, node_ids: Collection[int]) -> None:
        """Send SIGKILL to all of these before one is waited for."""
        processes = [self._running.pop(node_id) for node_id in node_ids]
        for process in processes:
            process.kill()
        self._paused.difference_update(node_ids)
        for process in processes:
            await process.wait()

    def pause(self, node_id: int) -> None:
        """Send SIGSTOP."""
        self._running[node_id].send_signal(signal.SIGSTOP)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Send SIGCONT."""
        self._running[node_id].send_signal(signal.SIGCONT)
        self._paused.discard(node_id)

    async def stop(self, node_ids: Collection[int]) -> None:
        """Stop these nodes cleanly, at once.

        Raises:
            NodeEnded: one did not end in order in time.
        """
        processes = {node_id: self._running.pop(node_id) for node_id in node_ids}
        for process in processes.values():
            process.terminate()
        for node_id, process in processes.items():
            try:
                async with asyncio.timeout(patient(STOP_S)):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                code = await process.wait()
            if code != self._system.stopped:
                raise NodeEnded(f"node {node_id} stopped with {code}; the end of its log:\n{self.log_end(node_id)}")

    def log_end(self, node_id: int) -> str:
        return self._log_of(node_id).read_text(encoding="utf-8", errors="replace")[-3000:]

    def logged(self, text: str) -> int:
        """Return how often the nodes logged a text."""
        return sum(
            self._log_of(node_id).read_text(encoding="utf-8", errors="replace").count(text)
            for node_id in self.node_ids
            if self._log_of(node_id).exists()
        )

    async def __aenter__(self) -> "NodeProcesses":
        await self.network.open()
        await self._format()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_spawned()
        kept = self.keep or problem is not None
        for node_id, disk in self._disks.items():
            await asyncio.to_thread(disk.close, self.folder / f"data-{node_id}" if kept else None)
        if not kept:
            shutil.rmtree(self.folder, ignore_errors=True)
