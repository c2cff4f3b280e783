"""The brokers and the registry of a test, on real sockets in this process.

Here: starting and stopping them; killing and restarting single nodes, cutting the network between them.
Not here: an app on them (`bus`), a thread of their own (`threaded`).
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from busway.extras import need
from busway.net.machine import current_machine
from busway.testing.partition import Group, Network, Partition, directions_between

NODES_MAX: Final = 7
_CHATTY: Final = ("httpx2", "httpcore2", "uvicorn", "uvicorn.error", "uvicorn.access", "alembic")


class Broker(Network, Protocol):
    """The broker of a test bus, or its nodes. They may be stopped and started under the app."""

    @property
    def node_ids(self) -> Sequence[int]:
        """The ids of all nodes."""

    async def start(self) -> None:
        """Start all nodes on the same ports with the same data."""

    async def stop(self) -> None:
        """Stop all nodes cleanly."""

    async def crash(self) -> None:
        """Kill all nodes, as processes are killed."""

    async def kill(self, node_id: int) -> None:
        """Kill one node, as a process is killed."""

    async def restart(self, node_id: int) -> None:
        """Start a killed node on the same port with the same data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Addresses and nodes of a test bus."""

    bootstrap_servers: str
    schema_registry: str
    broker: Broker

    @property
    def node_ids(self) -> Sequence[int]:
        """The ids of the nodes, from 1 on."""
        return self.broker.node_ids

    async def kill(self, node_id: int) -> None:
        """Kill a node, as a process is killed. The others of `nodes=3` go on."""
        await self.broker.kill(node_id)

    async def restart(self, node_id: int) -> None:
        """Start a killed node on the same port with the same data."""
        await self.broker.restart(node_id)

    def partition(self, *groups: Group, one_way: bool = False) -> Partition:
        """Cut the network between groups of nodes, as `async with cluster.partition(1):`, or awaited until it is healed.

        Connections stay open: what is sent arrives once the partition is healed, as with TCP.

        Args:
            groups: ids of nodes, each an int or several; "clients" are all clients. One group is cut from all other
                nodes; of several, each from each other. Who is in none reaches all.
            one_way: only what the first group sends is kept back.

        Raises:
            ValueError: an unknown member, one of two groups, or nothing is cut.
        """
        return Partition(self.broker, directions_between(self.node_ids, groups, one_way=one_way))

    async def heal(self) -> None:
        """Heal all partitions."""
        await self.broker.heal()


def check_nodes(nodes: int) -> None:
    """Raise ValueError unless it is 1, or 3 to `NODES_MAX`."""
    if nodes != 1 and not 3 <= nodes <= NODES_MAX:
        raise ValueError(f"nodes={nodes}: give 1, or 3 to {NODES_MAX} for a cluster that survives the loss of one")


@contextlib.asynccontextmanager
async def running_cluster(nodes: int = 1) -> AsyncIterator[Cluster]:
    """Run brokers and a registry.

    Args:
        nodes: 1, or 3 to 7 that form one cluster.
    """
    check_nodes(nodes)
    need("registry", "app.test()")
    from busway_bus.testing.local_cluster import LocalCluster
    from busway_bus.testing.local_network import LocalNetwork
    from busway_bus.testing.local_nodes import LocalNodes
    from busway_registry.config import RegistryConfig
    from busway_registry.server import RegistryServer

    with _quiet():
        async with (
            LocalCluster(network=LocalNetwork()) if nodes == 1 else LocalNodes(nodes) as broker,
            RegistryServer(RegistryConfig(port=0, database="memory:"), machine=current_machine()) as registry,
        ):
            yield Cluster(bootstrap_servers=broker.bootstrap_servers, schema_registry=registry.url, broker=broker)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Raise noisy libraries' loggers to WARNING; at INFO they log every request."""
    before = {name: logging.getLogger(name).level for name in _CHATTY}
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, before[name]))
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
