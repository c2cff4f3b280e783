"""What must hold of a simulated cluster while it runs.

Here: one leader an epoch, of the quorum and of each partition; what is below a high watermark is never replaced.
Not here: what clients see (`load`), the checks at the end (`run`).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.world import SimNode
from busway_protocol.records.batch import iter_batches
from tests.simulation.three_nodes.nodes import Cluster, content_of

METADATA: Final = ("__cluster_metadata", 0)
Place = tuple[str, int]


class Violation(AssertionError):
    """An invariant does not hold."""


class View(NamedTuple):
    """A partition on a node at a moment."""

    place: Place
    node: SimNode
    log: PartitionLog
    epoch: int
    leads: bool
    high_watermark: int


class Invariants:
    """The memory of the checks.

    Attributes:
        leaders: of each epoch of each partition.
        committed: batches below a high watermark of any node, by partition and base offset.
        looks: number of views that were checked.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.leaders: dict[tuple[Place, int], str] = {}
        self.committed: dict[Place, dict[int, bytes]] = {}
        self._checked: dict[tuple[Place, object], int] = {}
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
        for view in self._views():
            self.looks += 1
            if view.leads:
                self._leads(view)
            if view.node.name not in self._cluster.damaged:
                self._commits(view)

    def _views(self) -> Iterator[View]:
        for node in self._cluster.nodes:
            process = node.process
            if process is None or not process.alive or node.node is None:
                continue
            if (driver := driver_of(node)) is not None:
                core = driver.core
                yield View(METADATA, node, driver.log, core.epoch, driver.leading, core.high_watermark)
            if node in self._cluster.brokers and node.node._services is not None:
                for replica in node.node.services.replicas.local:
                    if not replica.log.closed:
                        place = (replica.topic, replica.index)
                        yield View(
                            place, node, replica.log, replica.leader_epoch, replica.leads, replica.high_watermark
                        )

    def _leads(self, view: View) -> None:
        leader = self.leaders.setdefault((view.place, view.epoch), view.node.name)
        if leader != view.node.name:
            raise Violation(f"epoch {view.epoch} of {view.place} is led by {leader} and by {view.node.name}")

    def _commits(self, view: View) -> None:
        """What a node has below its high watermark is what all others have there."""
        key = (view.place, view.log)
        start = max(self._checked.get(key, 0), view.log.start_offset)
        if view.high_watermark <= start:
            return
        committed = self.committed.setdefault(view.place, {})
        end = start
        assert view.node.process is not None
        try:
            with view.node.process.inside():
                content = content_of(view.log, start, view.high_watermark)
        except OSError:
            return  # the node is stopping, or its disk failed
        for header, part in iter_batches(content):
            if header.next_offset > view.high_watermark:
                break
            end = header.next_offset
            batch = bytes(part)
            if committed.setdefault(header.base_offset, batch) != batch:
                raise Violation(
                    f"{view.node.name} has another batch at offset {header.base_offset} of {view.place} than the "
                    f"one that was below a high watermark"
                )
        self._checked[key] = end


def driver_of(node: SimNode) -> Any:
    """The part of a node in the quorum, if it has begun."""
    member = getattr(node.node, "_member", None)
    if member is not None:
        return getattr(member._quorum, "driver", None)
    return getattr(node.node, "_driver", None)
