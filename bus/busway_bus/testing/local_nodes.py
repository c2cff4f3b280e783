"""Several real nodes of one cluster in this process, on free ports, for tests.

Here: start, kill, restart.
Not here: a single node (`local_cluster`), faults and clocks (see the simulation).
"""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from busway.net.machine import current_machine
from busway_bus.formatting import format_node, properties_of, random_cluster_id
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node
from busway_bus.testing.local_cluster import PROMPT
from busway_bus.testing.ports import HeldPort

_QUICK = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
}
"""Short times for the failover of a test; Kafka's are several times as long."""


class LocalNodes:
    """Nodes with the ids from 1 on, each broker and voter.

    Args:
        count: how many.
        properties: further settings of each, by Kafka's names.
        prompt: members send heartbeats every 200 ms; else at Kafka's default.
    """

    def __init__(self, count: int = 3, properties: Mapping[str, str] | None = None, *, prompt: bool = True) -> None:
        self.folder = tempfile.mkdtemp(prefix="busway-")
        self._cluster_id = random_cluster_id()
        self.nodes: dict[int, Node] = {}
        """The running nodes, by id."""
        self._ports = {number: HeldPort() for number in range(1, count + 1)}
        self._controller_ports = {number: HeldPort() for number in self._ports}
        voters = ",".join(f"{number}@127.0.0.1:{port.number}" for number, port in self._controller_ports.items())
        replicas, in_sync = str(min(3, count)), "2" if count > 2 else "1"
        self._configs = {
            number: BrokerConfig.from_properties(
                {
                    "process.roles": "broker,controller",
                    "node.id": str(number),
                    "log.dirs": str(Path(self.folder, f"node-{number}")),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port.number},CONTROLLER://127.0.0.1:{self._controller_ports[number].number}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": voters,
                    "default.replication.factor": replicas,
                    "min.insync.replicas": in_sync,
                    "group.initial.rebalance.delay.ms": "0",
                    **{
                        f"{topic}.{what}": value
                        for topic, least in (
                            ("offsets.topic", None),
                            ("transaction.state.log", "min.isr"),
                            ("share.coordinator.state.topic", "min.isr"),
                        )
                        for what, value in (
                            ("num.partitions", "1"),
                            ("replication.factor", replicas),
                            *(((least, in_sync),) if least else ()),
                        )
                    },
                    **_QUICK,
                    **(PROMPT if prompt else {}),
                    **(properties or {}),
                }
            )
            for number, port in self._ports.items()
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, also of those that do not run."""
        return ",".join(f"127.0.0.1:{port.number}" for port in self._ports.values())

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers."""
        return ",".join(f"127.0.0.1:{port.number}" for port in self._controller_ports.values())

    @property
    def node_ids(self) -> Sequence[int]:
        """Of all nodes, also of those that do not run."""
        return tuple(self._configs)

    async def start(self) -> None:
        """Start all nodes that do not run, at once, with the data they have."""
        async with asyncio.TaskGroup() as starts:
            for node_id in self._configs:
                if node_id not in self.nodes:
                    starts.create_task(self.restart(node_id))

    async def restart(self, node_id: int) -> None:
        """Start a node that does not run, with the data it has; an empty directory is formatted."""
        assert node_id not in self.nodes, f"node {node_id} runs"
        if properties_of(self._configs[node_id]) is None:
            format_node(self._configs[node_id], self._cluster_id)
        node = Node(self._configs[node_id], machine=current_machine())
        await node.start()
        self.nodes[node_id] = node

    async def kill(self, node_id: int) -> None:
        """End a node as a killed process ends."""
        await self.nodes.pop(node_id).stop(clean=False)

    async def shut_down(self, node_id: int) -> None:
        """Stop a node cleanly: its partitions move to others first."""
        await self.nodes.pop(node_id).stop()

    async def stop(self) -> None:
        """Stop all nodes cleanly."""
        await asyncio.gather(*(self.shut_down(node_id) for node_id in tuple(self.nodes)))

    async def crash(self) -> None:
        """End all nodes at once as killed processes end."""
        await asyncio.gather(*(self.kill(node_id) for node_id in tuple(self.nodes)))

    async def __aenter__(self) -> "LocalNodes":
        try:
            await self.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        """End all nodes; none waits for another's successor."""
        await self.crash()
        for port in (*self._ports.values(), *self._controller_ports.values()):
            port.release()
        shutil.rmtree(self.folder, ignore_errors=True)
