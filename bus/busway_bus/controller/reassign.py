"""Commands on the placement of existing partitions (KIP-455).

Here: beginning, changing and cancelling a reassignment, as Kafka's `ReplicationControlManager`, with its texts.
Not here: its end, when the new replicas are in sync (`partition_changes`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busway_bus.controller.controller import Surroundings, several
from busway_bus.controller.leaders import PartitionChanges
from busway_bus.controller.partition_changes import Election
from busway_bus.controller.placement import check_replicas
from busway_bus.controller.topic_settings import TopicSettings
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage, PartitionImage
from busway_protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition's new replicas; None cancels a move."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments:
    """Move partitions. The reply has each move's error, or None.

    Attributes:
        may_change_factor: whether the number of replicas may change.
    """

    moves: tuple[Move, ...]
    may_change_factor: bool = True

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[KafkaError | None, ...]]:
        def judgement(move: Move) -> Callable[[ClusterImage], Decision[None]]:
            return lambda newest: self._move(newest, move, surroundings.config)

        return several(image, map(judgement, self.moves))

    def _move(self, image: ClusterImage, move: Move, config: BrokerConfig) -> Decision[None]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if move.topic not in image.topics:
            raise KafkaError(code, f"Unable to find a topic named {move.topic}.")
        partition = image.partition(move.topic, move.partition)
        if partition is None:
            raise KafkaError(code, f"Unable to find partition {move.topic}:{move.partition}.")
        if move.replicas is None:
            return _cancel(image, move, partition, config)
        check_replicas(image, move.replicas)
        if not self.may_change_factor:
            _check_factor(partition, move.replicas)
        removing = sorted(set(partition.replicas) - set(move.replicas))
        adding = sorted(set(move.replicas) - set(partition.replicas))
        record = PartitionChanges(image, config).record(
            move.topic,
            move.partition,
            partition,
            election=Election.ONLINE,
            replicas=(*move.replicas, *removing),
            removing=removing or None,
            adding=adding or None,
        )
        return Decision(records=() if record is None else (record,), reply=None)


def _check_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    now = len({*partition.replicas, *partition.adding} - {*partition.removing})
    if len(replicas) != now:
        text = f"The replication factor is changed from {now} to {len(replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _cancel(image: ClusterImage, move: Move, partition: PartitionImage, config: BrokerConfig) -> Decision[None]:
    """Return to the replicas before the move.

    Only new replicas are in sync: the first old one leads, an unclean election.
    """
    if not partition.removing and not partition.adding:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not replicas:
        text = "Invalid replica assignment: addingReplicas contains all replicas."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if not isr:
        if not TopicSettings(image, config).unclean_elections(move.topic):
            text = (
                f"Unable to revert partition assignment for {move.topic}:{move.partition} because it would require an unclean leader "
                "election."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    record = PartitionChanges(image, config).record(
        move.topic, move.partition, partition, isr=isr, replicas=replicas, removing=(), adding=()
    )
    return Decision(records=() if record is None else (record,), reply=None)
