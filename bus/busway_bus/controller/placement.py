"""Placement of replicas on brokers.

Here: the records of new partitions, the usable brokers, checks of a caller's choice; texts are those of Kafka's
`ReplicationControlManager`.
Not here: the choice of brokers (`striped_placer`), moving existing replicas (`reassign`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from busway_bus.controller.striped_placer import StripedPlacer, UsableBroker, draws_from
from busway_bus.metadata.image import UNASSIGNED, ClusterImage
from busway_bus.metadata.records import PartitionRecord
from busway_protocol.errors import ErrorCode, KafkaError

_ASSIGNMENT: Final = "The manual partition assignment includes"


def place(image: ClusterImage, count: int, factor: int, new_id: Callable[[], UUID]) -> list[tuple[int, ...]]:
    """Choose replicas of new partitions, leader first.

    Args:
        new_id: makes the seed of random choices; not called if one broker is there.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, there are too few brokers.
    """
    placer = StripedPlacer(usable(image), draws_from(new_id))
    return [placer.place(factor) for _ in range(count)]


def usable(image: ClusterImage) -> Iterator[UsableBroker]:
    """Iterate over brokers that take new replicas: they do not shut down, and have a directory that is not cordoned."""
    for broker in image.brokers.values():
        cordoned = broker.cordoned_directories
        room = cordoned is None or not broker.directories or set(broker.directories).difference(cordoned)
        if room and not broker.in_controlled_shutdown:
            yield UsableBroker(broker.node_id, broker.rack, broker.fenced)


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
    """Build the records of new partitions. Active replicas are in sync, and the first leads.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, no replica is active.
    """
    places: dict[tuple[int, ...], tuple[list[int], list[UUID]]] = {}
    records = []
    for partition, brokers in replicas:
        key = tuple(brokers)
        if key not in places:
            active = [broker for broker in key if image.is_active(broker)]
            places[key] = (active, [directory_on(image, broker) for broker in key])
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
