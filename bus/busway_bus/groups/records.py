"""The record types of `__consumer_offsets`, as Kafka's group coordinator writes them.

What lives here: keys and values with the two-byte version in front. What does not: what they mean for a group. Layouts are
those of the kafka-group-coordinator 4.3.1 jar, so that `kafka-dump-log --offsets-decoder` reads them.
"""

from dataclasses import field
from typing import Annotated, Any, Final

from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import info_of, message, struct
from busway_protocol.types import (
    ZERO_UUID,
    Bytes,
    Int32,
    Int64,
    NullableStr,
    Str,
    Uuid,
    ignorable,
    since,
    tag,
    until,
)

OFFSET_VALUE_VERSION: Final = 4
GROUP_VALUE_VERSION: Final = 3
"""Versions that are written: the ones Kafka 4.3 writes. Newer ones are read."""


@message(api_key=1, versions=(0, 0))
class OffsetCommitKey:
    """Whose offset it is."""

    group: Str
    topic: Str
    partition: Int32


@message(api_key=1, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    """How far the group has read."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: Str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, since(4), tag(0), ignorable] = ZERO_UUID


@message(api_key=2, versions=(0, 0))
class GroupMetadataKey:
    """Which group it is."""

    group: Str


@struct
class MemberMetadata:
    """One member of a generation."""

    member_id: Str
    group_instance_id: Annotated[NullableStr, since(3), ignorable] = None
    client_id: Str
    client_host: Str
    rebalance_timeout: Annotated[Int32, since(1), ignorable] = -1
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(api_key=2, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A generation of a group with its members and their assignments."""

    protocol_type: Str
    generation: Int32
    protocol: NullableStr
    leader: NullableStr
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: list[MemberMetadata] = field(default_factory=list)


Key = OffsetCommitKey | GroupMetadataKey
Value = OffsetCommitValue | GroupMetadataValue


def key_bytes(key: Key) -> bytes:
    """A key as stored."""
    api_key = info_of(type(key)).api_key
    assert api_key is not None
    return api_key.to_bytes(2, "big") + encode(key, 0)


def value_bytes(value: Value | None) -> bytes | None:
    """A value as stored; None is a tombstone."""
    if value is None:
        return None
    version = GROUP_VALUE_VERSION
    if isinstance(value, OffsetCommitValue):
        # Version 1 alone has room for it; it has none for the leader epoch, which clients that give a time do not know.
        version = OFFSET_VALUE_VERSION if value.expire_timestamp < 0 else 1
    return version.to_bytes(2, "big") + encode(value, version)


def parse(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """The stored pair; None for a type of key that is not known here.

    Raises:
        MalformedMessage: the bytes are damaged.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind in {0, 1}:
        keys: tuple[type[Any], type[Any]] = (OffsetCommitKey, OffsetCommitValue)
    elif kind == 2:
        keys = (GroupMetadataKey, GroupMetadataValue)
    else:
        return None
    return decode(keys[0], 0, key, 2), None if value is None else _value(keys[1], value)


def _value(cls: type[Any], value: bytes) -> Value:
    version, info = int.from_bytes(value[:2], "big", signed=True), info_of(cls)
    if not info.min_version <= version <= info.max_version:
        raise MalformedMessage(
            f"{cls.__name__} in version {version}, but {info.max_version} is the last one known here"
        )
    decoded: Value = decode(cls, version, value, 2)
    return decoded
