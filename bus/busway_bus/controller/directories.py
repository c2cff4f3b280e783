"""The command with which a broker names the directories of its replicas (KIP-858).

Here: `AssignReplicasToDirs`, as Kafka's `ReplicationControlManager.handleAssignReplicasToDirs`.
Not here: a directory that fails (`brokers`).
"""

from dataclasses import dataclass
from uuid import UUID

from busway_bus.controller.brokers import registered
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.leaders import PartitionChanges, is_online
from busway_bus.controller.partition_changes import Election
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.delta import merged
from busway_bus.metadata.image import ClusterImage, PartitionImage
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError

Assignment = tuple[UUID, UUID, int]
"""Directory, topic id, partition index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirs:
    """Note where a broker's replicas are; reply each assignment's error, or NONE.

    A replica in a directory that is not online leaves leadership and ISR.
    """

    broker_id: int
    broker_epoch: int
    assignments: tuple[Assignment, ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[ErrorCode, ...]]:
        """Raise STALE_BROKER_EPOCH unless the broker is registered with its epoch."""
        registered(image, self.broker_id, self.broker_epoch)
        changes = PartitionChanges(image, surroundings.config)
        newest: dict[tuple[UUID, int], PartitionImage] = {}
        records: list[PartitionChangeRecord] = []
        replies: list[ErrorCode] = []
        for directory, topic_id, index in self.assignments:
            try:
                partition = newest.get((topic_id, index)) or self._partition(image, topic_id, index)
            except KafkaError as problem:
                replies.append(problem.code)
                continue
            offline = not is_online(image, self.broker_id, directory)
            record = changes.record(
                image.names[topic_id],
                index,
                partition,
                election=None if offline else Election.ONLINE,
                directories={self.broker_id: directory},
                isr=[replica for replica in partition.isr if replica != self.broker_id or not offline],
            )
            if record is not None:
                records.append(record)
                newest[topic_id, index] = merged(partition, record)
            replies.append(ErrorCode.NONE)
        return Decision(records=tuple(records), reply=tuple(replies))

    def _partition(self, image: ClusterImage, topic_id: UUID, index: int) -> PartitionImage:
        if topic_id not in image.names:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = image.partition_by_id(topic_id, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.broker_id not in partition.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition
