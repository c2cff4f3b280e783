"""Several real nodes of one cluster in this process, on free ports, for tests.

Here: start, kill, restart, cuts of their network.
Not here: a single node (`local_cluster`), faults and clocks (see the simulation).
"""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from busway.net.machine import current_machine
from busway_bus.formatting import format_node, properties_of, random_cluster_id
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node
from busway_bus.testing.local_cluster import PROMPT
from busway_bus.testing.local_network import CLIENTS, Direction, LocalNetwork
from busway_bus.testing.ports import HeldPort

QUICK_MS: Final = {
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.election.backoff.max.ms": 100,
    "controller.quorum.fetch.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 3000,
}
"""Short times for the failover of a test; Kafka's are several times as long."""


_OF_BROKER, _OF_CONTROLLER = "BROKER", "CONTROLLER"


class _Ports:
    """The ports of a node: for clients, and two for each node of the cluster."""

    def __init__(self, count: int) -> None:
        self.clients = HeldPort()
        self.broker = {peer: HeldPort() for peer in range(1, count + 1)}
        self.controller = {peer: HeldPort() for peer in self.broker}

    def release(self) -> None:
        for port in (self.clients, *self.broker.values(), *self.controller.values()):
            port.release()


def _listeners(node_id: int, ports: Mapping[int, _Ports]) -> dict[str, str]:
    """Return a node's settings of listeners.

    Each node reaches the others by listeners of its own number, so that they know who sends.
    """
    own = ports[node_id]
    by_peer = {
        **{f"{_OF_BROKER}{peer}": port.number for peer, port in own.broker.items()},
        **{f"{_OF_CONTROLLER}{peer}": port.number for peer, port in own.controller.items()},
    }
    names = [f"{_OF_CONTROLLER}{peer}" for peer in sorted(ports, key=lambda peer: peer != node_id)]
    voters = (f"{peer}@127.0.0.1:{theirs.controller[node_id].number}" for peer, theirs in ports.items())
    listeners = {"PLAINTEXT": own.clients.number, **by_peer}
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{number}" for name, number in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "inter.broker.listener.name": f"{_OF_BROKER}{node_id}",
        "controller.listener.names": ",".join(names),
        "controller.quorum.voters": ",".join(voters),
    }


def _source(listener: str) -> int:
    number = listener.removeprefix(_OF_BROKER).removeprefix(_OF_CONTROLLER)
    return int(number) if number.isdecimal() else CLIENTS


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
        self.network = LocalNetwork()
        self._ports = {number: _Ports(count) for number in range(1, count + 1)}
        replicas, in_sync = str(min(3, count)), "2" if count > 2 else "1"
        self._configs = {
            number: BrokerConfig.from_properties(
                {
                    "process.roles": "broker,controller",
                    "node.id": str(number),
                    "log.dirs": str(Path(self.folder, f"node-{number}")),
                    **_listeners(number, self._ports),
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
                    **{name: str(number) for name, number in QUICK_MS.items()},
                    **(PROMPT if prompt else {}),
                    **(properties or {}),
                }
            )
            for number in self._ports
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, also of those that do not run."""
        return ",".join(f"127.0.0.1:{ports.clients.number}" for ports in self._ports.values())

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers."""
        return ",".join(f"127.0.0.1:{ports.controller[number].number}" for number, ports in self._ports.items())

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
        streams = self.network.streams(node_id, _source)
        node = Node(self._configs[node_id], machine=current_machine(), streams=streams)
        await node.start()
        self.nodes[node_id] = node

    async def kill(self, node_id: int) -> None:
        """End a node as a killed process ends."""
        await self.nodes.pop(node_id).stop(clean=False)

    async def cut(self, directions: Collection[Direction]) -> None:
        """Keep back what is sent in these directions, also by nodes that restart."""
        self.network.cut(directions)

    async def heal(self, directions: Collection[Direction] | None = None) -> None:
        """Deliver what was kept back; None heals all directions."""
        self.network.heal(directions)

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
        for ports in self._ports.values():
            ports.release()
        shutil.rmtree(self.folder, ignore_errors=True)
