"""Commands on where partitions lie.

What lives here: the check of a list of replicas, and of a move, on a cluster of one broker. Moves that are taken on have nothing to
do, so that none is ever under way. Texts are those of Kafka's `ReplicationControlManager`.
"""

from collections.abc import Sequence

from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError


def check_replicas(replicas: Sequence[int], node_id: int) -> None:
    """Refuse replicas that cannot be had.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    begun = "The manual partition assignment includes"
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begun} an empty replica list.")
    if strange := sorted(broker for broker in replicas if broker != node_id):
        text = f"{begun} broker {strange[0]}, but no such broker is registered."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if len(replicas) > 1:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begun} the broker {node_id} more than once.")


def check_move(image: ClusterImage, topic: str, partition: int, replicas: Sequence[int] | None, node_id: int) -> None:
    """Refuse a move that cannot be made; null replicas end one, and there is none.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS.
    """
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not 0 <= partition < len(found.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{partition}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(replicas, node_id)
