"""Three nodes in this process, each broker and voter, on real sockets and disks.

Here: formatting, starting, stopping, and what is asked of them.
Not here: what must hold (the tests).
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.patience import patient_ms
from tests.support.programs import held_ports

from busway.net.connection import Connection
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Nodes:
    """Nodes 1 to `count` of one cluster, below a folder.

    Attributes:
        running: those that run, by id.
    """

    def __init__(self, folder: Path, count: int = 3, properties: Mapping[str, str] | None = None) -> None:
        self._folder, self._properties = folder, dict(properties or {})
        ports = held_ports(2 * count)
        self._ports = {node_id: (ports[2 * node_id - 2], ports[2 * node_id - 1]) for node_id in range(1, count + 1)}
        self.running: dict[int, Node] = {}
        for node_id in self._ports:
            directory = folder / str(node_id)
            directory.mkdir()
            text = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node_id}\n"
            (directory / "meta.properties").write_text(text)

    @property
    def ids(self) -> Sequence[int]:
        return tuple(self._ports)

    def bootstrap(self, node_id: int) -> str:
        return f"127.0.0.1:{self._ports[node_id][0]}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.bootstrap(node_id) for node_id in self.ids)

    def config(self, node_id: int) -> BrokerConfig:
        broker, controller = self._ports[node_id]
        return BrokerConfig.from_properties(
            {
                "process.roles": "broker,controller",
                "node.id": str(node_id),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
                "controller.quorum.voters": ",".join(
                    f"{voter}@127.0.0.1:{port}" for voter, (_, port) in self._ports.items()
                ),
                "controller.quorum.fetch.timeout.ms": str(patient_ms(2_000)),
                "controller.quorum.request.timeout.ms": str(patient_ms(2_000)),
                "broker.session.timeout.ms": str(patient_ms(9_000)),
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "2",
                "transaction.state.log.num.partitions": "2",
                **self._properties,
                "log.dirs": str(self._folder / str(node_id)),
            }
        )

    async def start(self, *node_ids: int) -> None:
        """Start nodes together, by default all that do not run."""
        made = {node_id: Node(self.config(node_id)) for node_id in node_ids or self.ids if node_id not in self.running}
        self.running.update(made)
        await asyncio.gather(*(node.start() for node in made.values()))

    async def stop(self, node_id: int, *, clean: bool = True) -> None:
        await self.running.pop(node_id).stop(clean=clean)

    async def asked(self, node_id: int, request: Any, *, at_most: int | None = None) -> Any:
        """Send a request to a node's broker."""
        return await _asked(self._ports[node_id][0], request, at_most)

    async def asked_controller(self, node_id: int, request: Any) -> Any:
        return await _asked(self._ports[node_id][1], request, None)

    @property
    def leader_id(self) -> int:
        """The active controller as the running nodes know it; -1 unless they agree."""
        known = {node._member.metadata.writer.leader_id for node in self.running.values() if node._member is not None}
        return known.pop() if len(known) == 1 else -1

    async def __aenter__(self) -> "Nodes":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = list(self.running.values())
        self.running.clear()
        await asyncio.gather(*(node.stop(clean=False) for node in running))


async def _asked(port: int, request: Any, at_most: int | None) -> Any:
    connection = Connection("127.0.0.1", port, client_id="test", timeout_s=patient_ms(10_000) / 1000)
    await connection.connect()
    try:
        return await connection.request(request, at_most=at_most)
    finally:
        connection.close()
