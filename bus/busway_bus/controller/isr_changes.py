"""The command with which a leader changes the in-sync replicas of its partitions (KIP-497, KIP-903).

Here: `AlterPartition` and every reason to refuse it, as `ReplicationControlManager.alterPartition` of Kafka.
Not here: the record of one partition (`partition_changes`), the rules of the leader (`replication.isr`).
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.controller.brokers import registered
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.leaders import PartitionChanges
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.delta import merged
from busway_bus.metadata.image import NO_LEADER_CHANGE, RECOVERED, RECOVERING, ClusterImage, PartitionImage
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError

ANY_EPOCH: Final = -1
"""Epoch of an in-sync replica that is not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A new ISR of one partition.

    Attributes:
        leader_epoch, partition_epoch: as the leader knows them; older ones are refused.
        isr: brokers and their epochs, `ANY_EPOCH` for one whose epoch is not known.
        recovery_state: RECOVERED as soon as the leader has recovered from an unclean election.
    """

    topic_id: UUID
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovery_state: int = RECOVERED

    @property
    def brokers(self) -> list[int]:
        return [broker for broker, _ in self.isr]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """Change ISRs independently; reply each partition as it is after the change, or an error.

    NEW_LEADER_ELECTED is the one error of a change that is made: it ended a reassignment, and another replica leads.
    """

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]

    def decide(
        self, image: ClusterImage, surroundings: Surroundings
    ) -> Decision[tuple[PartitionImage | KafkaError, ...]]:
        """Decide on each change; the second of one partition meets the epoch after the first.

        Raises:
            KafkaError: STALE_BROKER_EPOCH, the broker is not registered with this epoch.
        """
        registered(image, self.broker_id, self.broker_epoch)
        changes = PartitionChanges(image, surroundings.config)
        newest: dict[tuple[UUID, int], PartitionImage] = {}
        records: list[PartitionChangeRecord] = []
        replies: list[PartitionImage | KafkaError] = []
        for change in self.changes:
            key = (change.topic_id, change.partition_index)
            try:
                partition = newest.get(key) or _partition(image, change)
                _check_epochs(change, partition, self.broker_id)
                _check_isr(image, change, partition)
            except KafkaError as refusal:
                replies.append(refusal)
                continue
            record = changes.record(
                image.names[change.topic_id],
                change.partition_index,
                partition,
                isr=change.brokers,
                recovery_state=change.recovery_state,
            )
            if record is not None:
                records.append(record)
                partition = newest[key] = merged(partition, record)
            if record is not None and record.leader not in {NO_LEADER_CHANGE, self.broker_id}:
                text = f"The change ended a reassignment, and broker {record.leader} leads; fetch the metadata first."
                replies.append(KafkaError(ErrorCode.NEW_LEADER_ELECTED, text))
            else:
                replies.append(partition)
        return Decision(records=tuple(records), reply=tuple(replies))


def _partition(image: ClusterImage, change: IsrChange) -> PartitionImage:
    if change.topic_id not in image.names:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = image.partition_by_id(change.topic_id, change.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


def _check_epochs(change: IsrChange, partition: PartitionImage, broker_id: int) -> None:
    """Refuse a leader that is none any more, or that has not seen the partition's last change.

    NOT_CONTROLLER for epochs that are newer than this image: a newer controller has made them.
    """
    theirs, ours = (change.leader_epoch, change.partition_epoch), (partition.leader_epoch, partition.partition_epoch)
    text = f"leader epoch {theirs[0]} and partition epoch {theirs[1]}, but they are {ours[0]} and {ours[1]}"
    if theirs[0] > ours[0] or theirs[1] > ours[1]:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, text)
    if theirs[0] < ours[0]:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, text)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the leader is broker {partition.leader}")
    if theirs[1] < ours[1]:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_isr(image: ClusterImage, change: IsrChange, partition: PartitionImage) -> None:
    isr, recovering, reason = change.brokers, change.recovery_state == RECOVERING, ""
    if len({*isr}) < len(isr) or not {*isr} <= {*partition.replicas}:
        reason = f"the ISR {isr} is no set of its replicas {list(partition.replicas)}"
    elif partition.leader not in isr:
        reason = f"the ISR {isr} lacks the leader"
    elif recovering and len(isr) > 1:
        reason = f"the ISR is {isr}, but the leader is still recovering from an unclean election"
    elif recovering and partition.recovery_state == RECOVERED:
        reason = "a leader that has recovered recovers no more"
    elif change.recovery_state not in {RECOVERING, RECOVERED}:
        reason = f"there is no leader recovery state {change.recovery_state}"
    if reason:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if ineligible := [problem for broker, epoch in change.isr if (problem := _ineligible(image, broker, epoch))]:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"the ISR {isr} has ineligible ones: {', '.join(ineligible)}")


def _ineligible(image: ClusterImage, broker_id: int, epoch: int) -> str:
    """Return why a broker may not be in sync: it leaves, is gone, or is not the one that the leader saw."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return f"{broker_id} (not registered)"
    if broker.in_controlled_shutdown:
        return f"{broker_id} (shutting down)"
    if broker.fenced:
        return f"{broker_id} (fenced)"
    if epoch not in {ANY_EPOCH, broker.epoch}:
        return f"{broker_id} (broker epoch mismatch: requested={epoch} VS expected={broker.epoch})"
    return ""
