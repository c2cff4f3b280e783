"""What must hold of a simulated cluster while it runs.

Here: one leader an epoch, of the quorum and of each partition; what is below a high watermark is never replaced.
Not here: what clients see (`load`), the checks at the end (`run`).
"""

from typing import Final

from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.world import SimNode
from busway_protocol.records.batch import iter_batches
from tests.simulation.three_nodes.nodes import Cluster, driver_of

METADATA: Final = ("__cluster_metadata", 0)
Place = tuple[str, int]


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """The memory of the checks.

    Attributes:
        leaders: of each epoch of each partition.
        committed: batches below a high watermark of any node, by partition and base offset.
        looks: number of checks of a partition on a node.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.leaders: dict[tuple[Place, int], str] = {}
        self.committed: dict[Place, dict[int, bytes]] = {}
        self._checked: dict[PartitionLog, int] = {}
        self.looks = 0

    async def watch(self, every_s: float) -> None:
        while True:
            self.look()
            await self._cluster.world.sleep(every_s)

    def look(self) -> None:
        """Check all nodes that run.

        Raises:
            Violation: with the node, the partition and the offset.
        """
        for node in self._cluster.nodes:
            process = node.process
            if process is None or not process.alive or node.node is None:
                continue
            if (driver := driver_of(node)) is not None:
                core = driver.core
                self._check(node, METADATA, driver.log, core.epoch, core.high_watermark, leads=driver.leading)
            if node in self._cluster.brokers and node.node._services is not None:
                for replica in node.node.services.replicas.local:
                    if not replica.log.closed:
                        place, epoch = (replica.topic, replica.index), replica.leader_epoch
                        self._check(node, place, replica.log, epoch, replica.high_watermark, leads=replica.leads)

    def _check(
        self, node: SimNode, place: Place, log: PartitionLog, epoch: int, high_watermark: int, *, leads: bool
    ) -> None:
        self.looks += 1
        if leads and self.leaders.setdefault((place, epoch), node.name) != node.name:
            raise Violation(f"epoch {epoch} of {place} is led by {self.leaders[place, epoch]} and by {node.name}")
        start = max(self._checked.get(log, 0), log.start_offset)
        if high_watermark > start and node.name not in self._cluster.damaged:
            self._commits(node, place, log, start, high_watermark)

    def _commits(self, node: SimNode, place: Place, log: PartitionLog, start: int, high_watermark: int) -> None:
        """What a node has below its high watermark is what all others have there."""
        committed, offset = self.committed.setdefault(place, {}), start
        assert node.process is not None
        while offset < high_watermark:
            begin = offset
            try:
                with node.process.inside():
                    content = log.read(offset, 1 << 20, up_to=high_watermark)
            except OSError:
                return  # the node is stopping, or its disk failed
            if not content:
                return
            for header, part in iter_batches(content):
                if header.next_offset > high_watermark:
                    return
                self._checked[log] = offset = header.next_offset
                batch = bytes(part)
                if committed.setdefault(header.base_offset, batch) != batch:
                    raise Violation(
                        f"{node.name} has another batch at offset {header.base_offset} of {place} than the "
                        f"one that was below a high watermark"
                    )
            assert offset > begin, f"{node.name} has no whole batch at offset {offset} of {place}"
