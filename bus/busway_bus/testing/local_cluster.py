"""A real node in this process, on a free port, for tests.

Here: start, restart, stop.
Not here: faults and clocks (see the simulation).
"""

import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Final

from busway.net.machine import current_machine
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node
from busway_bus.server.acceptor import socket_streams
from busway_bus.testing.local_network import CLIENTS, Direction, LocalNetwork
from busway_bus.testing.ports import HOLDS, HeldPort

_ANY_PORT: Final = "PLAINTEXT://127.0.0.1:0"


PROMPT: Final = {
    f"group.{kind}.{what}heartbeat.interval.ms": "200" for kind in ("consumer", "share") for what in ("min.", "")
}
"""Short heartbeat intervals, for fast assignments; by default 5 s."""


class LocalCluster:
    """One node with its data in a directory.

    Args:
        data_dir: None for a temporary one that is removed.
        properties: further settings by Kafka's names; without them a group's first rebalance is not delayed.
        prompt: members send heartbeats every 200 ms; else at Kafka's default.
        network: to its clients, if it may be cut.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        prompt: bool = True,
        network: LocalNetwork | None = None,
    ) -> None:
        self._own = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="busway-")
        self._properties = {
            "listeners": _ANY_PORT,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            **(PROMPT if prompt else {}),
            **(properties or {}),
            "log.dirs": self.data_dir,
        }
        self.node: Node | None = None
        self._network = network
        self._port = 0
        self._held: HeldPort | None = None

    @property
    def bootstrap_servers(self) -> str:
        assert self.node is not None, "the cluster has not started"
        return self.node.bootstrap_servers

    async def start(self) -> None:
        """Start the node. A restart keeps data and port, which stays reserved."""
        properties = dict(self._properties)
        if HOLDS and self._held is None and properties["listeners"] == _ANY_PORT:
            self._held = HeldPort()
            self._port = self._held.number
        if self._port:
            first, comma, others = properties["listeners"].partition(",")
            properties["listeners"] = f"{first.rpartition(':')[0]}:{self._port}{comma}{others}"
        streams = socket_streams if self._network is None else self._network.streams(1, lambda _: CLIENTS)
        self.node = Node(BrokerConfig.from_properties(properties), machine=current_machine(), streams=streams)
        await self.node.start()
        self._port = int(self.bootstrap_servers.rpartition(":")[2])

    async def stop(self) -> None:
        if self.node is not None:
            await self.node.stop()
            self.node = None

    @property
    def node_ids(self) -> Sequence[int]:
        return (1,)

    async def kill(self, node_id: int) -> None:
        """See `crash`: there is one node."""
        await self.crash()

    async def restart(self, node_id: int) -> None:
        """See `start`: there is one node."""
        await self.start()

    async def cut(self, directions: Collection[Direction]) -> None:
        """Keep back what is sent between node 1 and its clients."""
        assert self._network is not None, "the cluster was made without a network that can be cut"
        self._network.cut(directions)

    async def heal(self, directions: Collection[Direction] | None = None) -> None:
        """Deliver what was kept back; None heals both directions."""
        if self._network is not None:
            self._network.heal(directions)

    async def crash(self) -> None:
        """Stop the node as if killed. The next start recovers the data."""
        if self.node is not None:
            await self.node.stop(clean=False)
            self.node = None

    async def __aenter__(self) -> "LocalCluster":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._held is not None:
            self._held.release()
        if self._own:
            shutil.rmtree(self.data_dir, ignore_errors=True)
