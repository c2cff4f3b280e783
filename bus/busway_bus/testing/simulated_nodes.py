"""Several simulated nodes of one cluster.

Here: their settings, formatting their disks, starting them together.
Not here: one node (`world`), nodes on real sockets (`local_nodes`).
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from busway_bus.testing.world import Crashed, SimNode, World

PORT, CONTROLLER_PORT = 9092, 9093
BOTH_ROLES: Final = "broker,controller"
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def cluster_settings(names: Sequence[str], roles: Sequence[str]) -> list[dict[str, str]]:
    """Return the settings of nodes 1, 2 … by Kafka's names.

    Every controller is a voter. Topics have three replicas, or as many as there are brokers.

    Args:
        names: of the hosts.
        roles: process.roles of each.
    """
    voters = [
        f"{number}@{name}:{CONTROLLER_PORT}"
        for number, name in enumerate(names, 1)
        if "controller" in roles[number - 1]
    ]
    brokers = sum("broker" in role for role in roles)
    replicas, in_sync = str(min(3, brokers)), "2" if brokers > 2 else "1"
    of_topics = {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    return [
        {
            "process.roles": role,
            "node.id": str(number),
            "listeners": ",".join(
                f"{listener}://{name}:{port}"
                for kind, listener, port in (
                    ("broker", "PLAINTEXT", PORT),
                    ("controller", "CONTROLLER", CONTROLLER_PORT),
                )
                if kind in role
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(voters),
            **(of_topics if brokers else {}),
        }
        for number, (name, role) in enumerate(zip(names, roles, strict=True), 1)
    ]


def format_disk(node: SimNode, number: int, cluster_id: str = CLUSTER_ID) -> None:
    """Write the `meta.properties` of a node with this id, as `busway cluster format` does."""
    node.disk.replace("meta.properties", f"version=1\ncluster.id={cluster_id}\nnode.id={number}\n".encode())


def simulated_nodes(
    world: World, names: Sequence[str], properties: Mapping[str, str] | None = None
) -> Sequence[SimNode]:
    """Make nodes on hosts of these names, each broker and voter, with formatted disks; they are not started.

    Args:
        properties: further settings of each, by Kafka's names.
    """
    nodes = []
    for number, settings in enumerate(cluster_settings(names, [BOTH_ROLES] * len(names)), 1):
        node = world.node(names[number - 1], {**settings, **(properties or {})})
        format_disk(node, number)
        nodes.append(node)
    return nodes


async def start_nodes(nodes: Collection[SimNode]) -> None:
    """Start those that do not run, at once: one alone waits for a majority. A node that crashes meanwhile stays away."""
    await asyncio.gather(*(_start(node) for node in nodes if not node.running))


async def _start(node: SimNode) -> None:
    with contextlib.suppress(Crashed):
        await node.start()
