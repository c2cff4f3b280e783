"""Placement of replicas on brokers.

Here: the choice for new partitions, checks of a caller's.
Not here: moving existing ones (`reassign`). Texts are those of Kafka's `ReplicationControlManager` and
`StripedReplicaPlacer`.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from busway_bus.metadata.image import UNASSIGNED, ClusterImage
from busway_bus.metadata.records import PartitionRecord
from busway_protocol.errors import ErrorCode, KafkaError

_ASSIGNMENT: Final = "The manual partition assignment includes"


def place(image: ClusterImage, count: int, factor: int, *, first: int) -> list[tuple[int, ...]]:
    """Choose replicas of new partitions, leader first, round-robin over usable brokers.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, there are too few brokers.
    """
    brokers = [broker.node_id for broker in image.usable_brokers()]
    if factor > len(brokers):
        text = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be reached "
            f"because only {len(brokers)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    return [
        tuple(brokers[(partition + replica) % len(brokers)] for replica in range(factor))
        for partition in range(first, first + count)
    ]


def check_replicas(image: ClusterImage, replicas: Sequence[int], factor: int | None = None) -> None:
    """Refuse an impossible list of replicas.

    Args:
        factor: replicas of the topic's other partitions; None for the first.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    code, before = ErrorCode.INVALID_REPLICA_ASSIGNMENT, None
    if not replicas:
        raise KafkaError(code, f"{_ASSIGNMENT} an empty replica list.")
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise KafkaError(code, f"{_ASSIGNMENT} broker {broker}, but no such broker is registered.")
        if broker == before:
            raise KafkaError(code, f"{_ASSIGNMENT} the broker {broker} more than once.")
        before = broker
    if factor is not None and len(replicas) != factor:
        text = (
            f"{_ASSIGNMENT} a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {factor} replica(s)."
        )
        raise KafkaError(code, text)


def new_partitions(
    image: ClusterImage, topic_id: UUID, replicas: Iterable[tuple[int, Sequence[int]]]
) -> list[PartitionRecord]:
    """Build the records of new partitions. Usable replicas are in sync, and the first leads.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, no replica is usable.
    """
    places: dict[tuple[int, ...], tuple[list[int], list[UUID]]] = {}
    records = []
    for partition, brokers in replicas:
        key = tuple(brokers)
        if key not in places:
            usable = [broker for broker in key if not image.brokers[broker].fenced]
            places[key] = (usable, [directory_on(image, broker) for broker in key])
        isr, directories = places[key]
        if not isr:
            text = (
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled "
                "shutdown."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        records.append(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=list(key),
                isr=isr,
                removing_replicas=[],
                adding_replicas=[],
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=directories,
            )
        )
    return records


def directory_on(image: ClusterImage, broker: int) -> UUID:
    """Return a broker's directory; UNASSIGNED if it has several, to report one later."""
    directories = image.brokers[broker].directories
    return directories[0] if len(directories) == 1 else UNASSIGNED
