"""Several simulated nodes of one cluster, each broker and voter.

Here: their settings, and starting them together.
Not here: one node (`world`), nodes on real sockets (`local_nodes`).
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from busway_bus.testing.world import Crashed, SimNode, World

PORT, CONTROLLER_PORT = 9092, 9093
_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def simulated_nodes(
    world: World, names: Sequence[str], properties: Mapping[str, str] | None = None
) -> Sequence[SimNode]:
    """Make nodes on hosts of these names, with formatted disks; they are not started.

    Args:
        properties: further settings of each, by Kafka's names.
    """
    voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for number, name in enumerate(names, 1))
    replicas, in_sync = str(min(3, len(names))), "2" if len(names) > 2 else "1"
    nodes = []
    for number, name in enumerate(names, 1):
        node = world.node(
            name,
            {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": replicas,
                "min.insync.replicas": in_sync,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": in_sync,
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": in_sync,
                **(properties or {}),
            },
        )
        node.disk.replace("meta.properties", f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id={number}\n".encode())
        nodes.append(node)
    return nodes


async def start_nodes(nodes: Collection[SimNode]) -> None:
    """Start those that do not run, at once: one alone waits for a majority. A node that crashes meanwhile stays away."""
    await asyncio.gather(*(_start(node) for node in nodes if not node.running))


async def _start(node: SimNode) -> None:
    with contextlib.suppress(Crashed):
        await node.start()
