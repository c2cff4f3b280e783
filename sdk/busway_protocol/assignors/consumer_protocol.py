"""Consumers' subscriptions and assignments in JoinGroup and SyncGroup, versions 0 to 3.

Here: types and framing (int16 version first).
Not here: the assignors. A version above 3 is read as 3, since later ones only add at the end.
"""

import struct
from collections.abc import Iterable
from dataclasses import field
from typing import Annotated, Final

from busway_protocol.assignors.subscription import Subscription, TopicPartition
from busway_protocol.compile import decode_from, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import message
from busway_protocol.schema import struct as wire_struct
from busway_protocol.types import Buffer, Int32, NullableBytes, NullableStr, Str, TopicName, ignorable, since

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = 3
_PREFIX: Final = struct.Struct(">h")


@wire_struct
class OwnedTopicPartition:
    topic: Annotated[TopicName, since(1)] = ""
    partitions: Annotated[list[Int32], since(1)] = field(default_factory=list)


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    topics: list[Str]
    user_data: NullableBytes = None
    owned_partitions: Annotated[list[OwnedTopicPartition], since(1), ignorable] = field(default_factory=list)
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[NullableStr, since(3), ignorable] = None


@wire_struct
class AssignedTopicPartition:
    topic: TopicName
    partitions: list[Int32]


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignedTopicPartition]
    user_data: NullableBytes = None


def _grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return grouped


def _version(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise MalformedMessage(f"{len(data)} bytes of consumer protocol, too few for its version")
    version = int(_PREFIX.unpack_from(data)[0])
    if version < 0:
        raise MalformedMessage(f"consumer protocol version {version}")
    return min(version, VERSION)


def version_of(data: Buffer) -> int:
    """Return the version of a subscription or an assignment; 0 without a valid one."""
    try:
        return _version(data)
    except MalformedMessage:
        return 0


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    value = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            OwnedTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _grouped(subscription.owned_partitions).items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return _PREFIX.pack(version) + encode(value, version)


def decode_subscription(data: Buffer, group_instance_id: str | None = None, *, bounded: bool = False) -> Subscription:
    """Decode a subscription; raise `MalformedMessage`. For `bounded` see `decode_from`."""
    value, _ = decode_from(ConsumerProtocolSubscription, _version(data), data, 2, bounded=bounded)
    return Subscription(
        topics=tuple(value.topics),
        owned_partitions=tuple(
            (owned.topic, number) for owned in value.owned_partitions for number in owned.partitions
        ),
        generation_id=value.generation_id,
        group_instance_id=group_instance_id,
        rack_id=value.rack_id,
        user_data=value.user_data,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None, version: int = VERSION
) -> bytes:
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopicPartition(topic=topic, partitions=numbers) for topic, numbers in _grouped(partitions).items()
        ],
        user_data=user_data,
    )
    return _PREFIX.pack(version) + encode(value, version)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """Return the assigned partitions; none for empty bytes."""
    return assignment_with_user_data(data)[0]


def assignment_with_user_data(data: Buffer, *, bounded: bool = False) -> tuple[list[TopicPartition], bytes]:
    """Return the assigned partitions and the assignor's user data; raise `MalformedMessage`."""
    if len(data) == 0:
        return [], b""
    value, _ = decode_from(ConsumerProtocolAssignment, _version(data), data, 2, bounded=bounded)
    partitions = [(assigned.topic, number) for assigned in value.assigned_partitions for number in assigned.partitions]
    return partitions, bytes(value.user_data or b"")
