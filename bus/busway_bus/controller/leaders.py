"""Leaders of partitions, and their epochs.

Here: new leader epochs, replicas that fail or return, elections.
Not here: which logs are affected (`replication`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.controller.controller import Surroundings
from busway_bus.controller.placement import directory_on
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import LOST, NO_LEADER, NO_LEADER_CHANGE, UNASSIGNED, ClusterImage
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1
"""Types of election (KIP-460)."""
_NO_CANDIDATE: Final[Mapping[int, tuple[ErrorCode, str]]] = {
    PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
}


def begin_epochs(image: ClusterImage, partitions: Iterable[tuple[str, int]]) -> Decision[None]:
    """Start new leader epochs: new records must not be mistaken for lost ones.

    Args:
        partitions: (topic name, number); deleted ones are skipped.
    """
    records = []
    for name, partition in partitions:
        topic = image.topics.get(name)
        if topic is not None and partition < len(topic.partitions):
            leader = topic.partitions[partition].leader
            records.append(PartitionChangeRecord(partition_id=partition, topic_id=topic.topic_id, leader=leader))
    return Decision(records=tuple(records), reply=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochs:
    """Start new epochs of partitions whose leaders may have lost records."""

    partitions: tuple[tuple[str, int], ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        return begin_epochs(image, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReplicas:
    """Report partitions that a broker cannot serve, or can serve again."""

    node_id: int
    lost: tuple[tuple[str, int], ...] = ()
    restored: tuple[tuple[str, int], ...] = ()

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        """Remove a lost replica from leadership and from the ISR.

        The last one in sync stays in the ISR. A restored one in the ISR leads a leaderless partition.
        """
        records = []
        for keys, directory in ((self.lost, LOST), (self.restored, directory_on(image, self.node_id))):
            for name, partition_index in keys:
                partition = image.partition(name, partition_index)
                if partition is None or self.node_id not in partition.replicas:
                    continue
                records.append(self._change(image, name, partition_index, directory))
        return Decision(records=tuple(records), reply=None)

    def _change(self, image: ClusterImage, name: str, partition_index: int, directory: UUID) -> PartitionChangeRecord:
        topic = image.topics[name]
        partition = topic.partitions[partition_index]
        directories = [
            directory if replica == self.node_id else partition.directory_on(replica) or UNASSIGNED
            for replica in partition.replicas
        ]
        leader, isr = NO_LEADER_CHANGE, None
        if directory == LOST:
            others = [replica for replica in partition.isr if replica != self.node_id]
            if partition.leader == self.node_id:
                able = (replica for replica in others if replica in image.brokers and not image.brokers[replica].fenced)
                leader = next(able, NO_LEADER)
            if others:
                isr = others
        elif partition.leader == NO_LEADER and self.node_id in partition.isr:
            leader = self.node_id
        return PartitionChangeRecord(
            topic_id=topic.topic_id, partition_id=partition_index, leader=leader, isr=isr, directories=directories
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elect leaders of partitions; without names, of all leaderless ones. Replies each result."""

    kind: int
    partitions: tuple[tuple[str, int], ...] | None

    def decide(
        self, image: ClusterImage, surroundings: Surroundings
    ) -> Decision[tuple[tuple[tuple[str, int], KafkaError], ...]]:
        """Decide on each alone. No election is ever held: a partition with an eligible replica has a leader."""
        partitions = self.partitions
        if partitions is None:
            partitions = tuple(
                (topic.name, partition_index)
                for topic in image.topics.values()
                for partition_index, partition in enumerate(topic.partitions)
                if partition.leader == NO_LEADER
            )
        return Decision(reply=tuple((key, _elect(image, *key, self.kind)) for key in partitions))


def _elect(image: ClusterImage, topic: str, partition_index: int, kind: int) -> KafkaError:
    if kind not in _NO_CANDIDATE:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    if topic not in image.topics:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    partition = image.partition(topic, partition_index)
    if partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{partition_index}")
    if partition.leader == NO_LEADER:
        return KafkaError(*_NO_CANDIDATE[kind])
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
