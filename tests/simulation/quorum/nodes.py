"""Controllers as whole nodes in a simulated world, which speak with each other over its network.

Here: a host with a controller, several that make a cluster, and what is asked of them.
Not here: what must hold (the tests).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from busway.net.connection import Connection
from busway_bus.controller_node import ControllerNode
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import TOPIC, ConfigRecord
from busway_bus.quorum.driver import QuorumDriver
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.testing.simulated_nodes import CLUSTER_ID, cluster_settings, format_disk
from busway_bus.testing.world import SimNode, World
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine
from busway_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionQuery, TopicQuery

BROKERS = (4, "")
"""The resource whose settings are those of all brokers."""


class SimController(SimNode):
    """A controller of a world."""

    def _make(self, config: BrokerConfig, machine: Machine) -> Any:
        return ControllerNode(config, machine=machine, files=self._open)

    @property
    def controller(self) -> ControllerNode:
        """The node that runs."""
        assert self.node is not None, f"{self.name} does not run"
        return cast("ControllerNode", self.node)

    @property
    def quorum(self) -> QuorumDriver:
        """Its part in the quorum."""
        return self.controller.services.quorum

    @property
    def metadata(self) -> MetadataLog:
        """Its metadata log."""
        return self.controller.services.metadata

    @property
    def leads(self) -> bool:
        """Whether it runs and leads."""
        return self.running and self.node is not None and self.controller._services is not None and self.quorum.leading

    async def command(self, name: str) -> int:
        """Write down a setting of that name; answers how many there are by then.

        Raises:
            Crashed: it was crashed before it answered.
            KafkaError: it refuses.
        """
        assert self.process is not None

        def decide(image: ClusterImage) -> Decision[int]:
            record = ConfigRecord(resource_type=BROKERS[0], resource_name=BROKERS[1], name=name, value="v")
            return Decision(records=(record,), reply=len(image.configs.get(BROKERS, {})) + 1)

        return await self.process.run(self.metadata.run, decide)

    @property
    def settings(self) -> Sequence[str]:
        """What its image has of them."""
        return tuple(self.metadata.image.configs.get(BROKERS, {}))


def controllers(world: World, count: int = 3, cluster_ids: Sequence[str] = (), **settings: int) -> list[SimController]:
    """Controllers on hosts of their own, with formatted disks; not started."""
    names = [f"c{number}" for number in range(1, count + 1)]
    further = {key.replace("_", "."): str(value) for key, value in settings.items()}
    made = []
    for number, properties in enumerate(cluster_settings(names, ["controller"] * count), 1):
        node = SimController(world, names[number - 1], {**properties, **further})
        format_disk(node, number, cluster_ids[number - 1] if cluster_ids else CLUSTER_ID)
        made.append(node)
    return made


async def leader_of(world: World, nodes: Sequence[SimController], *, within_s: float = 15.0) -> SimController:
    """The one that leads the latest epoch, as soon as there is one."""
    async with asyncio.timeout(within_s):
        while True:
            leading = [node for node in nodes if node.leads]
            if leading:
                return max(leading, key=lambda node: node.quorum.epoch)
            await world.sleep(0.01)


async def all_have(world: World, nodes: Sequence[SimController], names: set[str], *, within_s: float = 15.0) -> None:
    """Wait until every controller follows these settings."""
    async with asyncio.timeout(within_s):
        while not all(node.running and names <= set(node.settings) for node in nodes):
            await world.sleep(0.01)


async def carried_out(world: World, nodes: Sequence[SimController], name: str) -> SimController:
    """Have a command carried out by the leader, however often that takes."""
    while True:
        leader = await leader_of(world, nodes)
        try:
            await leader.command(name)
        except KafkaError:
            await world.sleep(0.05)
        else:
            return leader


async def asked(address: str, request: Any) -> Any:
    """What a controller answers over the wire."""
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=5)
    await connection.connect()
    try:
        return await connection.request(request)
    finally:
        connection.close()


async def describe(address: str) -> DescribeQuorumResponse:
    """What a controller says of the quorum, over the wire."""
    query = TopicQuery(topic_name=TOPIC, partitions=[PartitionQuery(partition_index=0)])
    answer: DescribeQuorumResponse = await asked(address, DescribeQuorumRequest(topics=[query]))
    return answer
