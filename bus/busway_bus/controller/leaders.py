"""Who leads a partition, and since which epoch.

What lives here: the decisions that a leader begins anew, and on elections. What does not: which logs may have lost records
(`replication`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from busway_bus.controller.controller import Surroundings
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import PartitionChangeRecord


def begin_epochs(image: ClusterImage, partitions: Iterable[tuple[str, int]]) -> Decision[None]:
    """Let the leader of each partition begin a new epoch: what is written from now on is not mistaken for records of the old one.

    Args:
        partitions: names of topics and numbers; those that are gone by now are left out.
    """
    records = []
    for name, number in partitions:
        topic = image.topics.get(name)
        if topic is not None and number < len(topic.partitions):
            leader = topic.partitions[number].leader
            records.append(PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=leader))
    return Decision(records=tuple(records), reply=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochs:
    """The leaders of these partitions, by topic and number, may have lost records."""

    partitions: tuple[tuple[str, int], ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        """See `begin_epochs`."""
        return begin_epochs(image, self.partitions)
