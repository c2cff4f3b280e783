"""The nodes of a simulated cluster.

Here: making them, keeping them running, their partitions and their logs.
Not here: the faults (`faults`), controllers alone (`tests.simulation.quorum`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from busway_bus.log.partition_log import PartitionLog
from busway_bus.replication.partition import Partition
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.simulated_nodes import cluster_settings, format_disk
from busway_bus.testing.world import Crashed, SimNode, World
from busway_protocol.records.batch import iter_batches
from tests.simulation.quorum.nodes import SimController
from tests.simulation.three_nodes.plan import ClusterPlan

TOPIC, COPY = "t", "copy"
_LOOK_S: Final = 0.1
_AGAIN_S: Final = 0.5
"""Pause after a start that failed."""


class Cluster:
    """The nodes of a run.

    Attributes:
        down_until: time before which a node is not started.
        refused: why the last start of a node failed.
        starts: number of starts.
        disks: number of replaced disks.
        damaged: names of nodes with damaged files.
    """

    def __init__(self, world: World, plan: ClusterPlan) -> None:
        self.world, self.plan = world, plan
        names = [f"n{number}" for number in range(1, len(plan.roles) + 1)]
        self.nodes = [
            (SimNode if "broker" in roles else SimController)(world, name, {**settings, **plan.settings})
            for name, roles, settings in zip(names, plan.roles, cluster_settings(names, plan.roles), strict=True)
        ]
        for node in self.nodes:
            self._format(node)
        self.by_name = {node.name: node for node in self.nodes}
        self.brokers = [node for node, roles in zip(self.nodes, plan.roles, strict=True) if "broker" in roles]
        self.voters = [node for node, roles in zip(self.nodes, plan.roles, strict=True) if "controller" in roles]
        self.down_until: dict[str, float] = {}
        self.refused: dict[str, Exception] = {}
        self.starts = self.disks = 0
        self.damaged: set[str] = set()

    def _format(self, node: SimNode) -> None:
        format_disk(node, int(node.name.removeprefix("n")))
        node.disk.faults.sync_s = (0.0, self.plan.delays.get("sync_ms", 0.0) / 1000)

    def replace_disk(self, node: SimNode) -> None:
        """Give a node that does not run an empty, formatted disk."""
        waits, self.disks = node.disk.waits, self.disks + 1
        node.disk = SimFiles(self.world.chance(f"{node.name}/disk/{self.disks}"))
        node.disk.waits = waits
        self._format(node)

    @property
    def addresses(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.brokers)

    def take_down(self, node: SimNode, for_ms: int) -> None:
        """Do not start a node before this time."""
        self.down_until[node.name] = max(self.down_until.get(node.name, 0.0), self.world.now + for_ms / 1000)

    async def keep(self, node: SimNode) -> None:
        """Start a node whenever it is down and may be up, as an operator does."""
        while True:
            if not node.running and self.world.now >= self.down_until.get(node.name, 0.0):
                try:
                    self.starts += 1
                    await node.start()
                    self.refused.pop(node.name, None)
                except Crashed:
                    continue
                except Exception as problem:  # kept: a node that never starts fails the run with it
                    self.refused[node.name] = problem
                    await self.world.sleep(_AGAIN_S)
            await self.world.sleep(_LOOK_S)

    def hasten_first_election(self) -> bool:
        """Let a voter's election time-out end now, once a majority runs; return whether it does.

        In new voters' time-outs nothing happens but fetches that are refused. Later elections take their time.
        """
        running = [
            node for node in self.voters if (driver := driver_of(node)) is not None and driver._owner is not None
        ]
        if len(running) * 2 <= len(self.voters):
            return False
        node = self.world.chance("first election").choice(running)
        driver = driver_of(node)
        driver.core.replica.deadline_ms = 0
        with node.process.inside():
            driver._wake()
        return True

    @property
    def serving(self) -> Iterator[SimNode]:
        """The brokers whose services are built."""
        return (node for node in self.brokers if node.running and node.node is not None and node.node._services)

    def replicas(self, topic: str, index: int) -> dict[str, Partition]:
        """The opened replicas of a partition, by node."""
        opened = {}
        for node in self.serving:
            assert node.node is not None
            replica = node.node.services.replicas.local.get((topic, index))
            if replica is not None:
                opened[node.name] = replica
        return opened

    def in_sync(self, topics: Sequence[str]) -> bool:
        """Whether all brokers run, and all replicas of the topics are in sync in the image of each."""
        for node in self.nodes:
            if not serves(node):
                return False
        for node in self.brokers:
            assert node.node is not None
            if node.node._services is None:
                return False
            image = node.node.services.image
            for name in topics:
                topic = image.topics.get(name)
                if topic is None or any(set(part.isr) != set(part.replicas) for part in topic.partitions):
                    return False
        return True


def driver_of(node: SimNode) -> Any:
    """The part of a node in the quorum, if it has begun."""
    member = getattr(node.node, "_member", None)
    if member is not None:
        return getattr(member._quorum, "driver", None)
    return getattr(node.node, "_driver", None)


def serves(node: SimNode) -> bool:
    """Whether a node has started and not ended."""
    return node.running and node.node is not None and node.exited is not None and not node.exited.done()


def content_of(log: PartitionLog, offset: int, up_to: int) -> bytes:
    """The batches of a log between two offsets."""
    pieces = []
    while offset < up_to:
        piece = bytes(log.read(offset, 1 << 20, up_to=up_to))
        if not piece:
            break
        pieces.append(piece)
        offset = max(header.next_offset for header, _ in iter_batches(piece))
    return b"".join(pieces)
