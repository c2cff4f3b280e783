"""Commands on the placement of existing partitions.

Here: checks. An accepted move keeps the brokers, so none is ever in progress. Texts are those of Kafka's
`ReplicationControlManager`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from busway_bus.controller.controller import Surroundings, several
from busway_bus.controller.placement import check_replicas
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition's new replicas; None cancels a move."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments:
    """Move partitions. The reply has each move's error, or None."""

    moves: tuple[Move, ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[KafkaError | None, ...]]:
        def judgement(move: Move) -> Callable[[ClusterImage], Decision[None]]:
            return lambda newest: _move(newest, move)

        return several(image, map(judgement, self.moves))


def _move(image: ClusterImage, move: Move) -> Decision[None]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if move.topic not in image.topics:
        raise KafkaError(code, f"Unable to find a topic named {move.topic}.")
    partition = image.partition(move.topic, move.partition)
    if partition is None:
        raise KafkaError(code, f"Unable to find partition {move.topic}:{move.partition}.")
    if move.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(image, move.replicas)
    if set(move.replicas) != set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Moves to other brokers are not served yet.")
    return Decision(reply=None)
