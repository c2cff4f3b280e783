"""The record types of `__share_group_state`, as Kafka's share coordinator writes them.

Here: keys and values after a two-byte version; layouts of the kafka-share-coordinator 4.3.1 jar, which `kafka-dump-log
--share-group-state-decoder` reads.
Not here: their meaning (`shard`).
"""

from typing import Annotated, Any, Final

from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import info_of, message, struct
from busway_protocol.types import Int8, Int16, Int32, Int64, Str, Uuid, tag

VALUE_VERSION: Final = 0


@message(api_key=0, versions=(0, 0))
class ShareSnapshotKey:
    group_id: Str
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    """Records, bounds included, in the same state."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(api_key=0, versions=(0, 0), flexible=0)
class ShareSnapshotValue:
    """The whole state; null where it was deleted."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


@message(api_key=1, versions=(0, 0))
class ShareUpdateKey:
    group_id: Str
    topic_id: Uuid
    partition: Int32


@message(api_key=1, versions=(0, 0), flexible=0)
class ShareUpdateValue:
    """Changes since the last snapshot and all earlier updates."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    state_batches: list[StateBatch]


Key = ShareSnapshotKey | ShareUpdateKey
Value = ShareSnapshotValue | ShareUpdateValue
_TYPES: Final[tuple[tuple[type[Any], type[Any]], ...]] = (
    (ShareSnapshotKey, ShareSnapshotValue),
    (ShareUpdateKey, ShareUpdateValue),
)


def key_bytes(key: Key) -> bytes:
    api_key = info_of(type(key)).api_key
    assert api_key is not None
    return api_key.to_bytes(2, "big") + encode(key, 0)


def value_bytes(value: Value | None) -> bytes | None:
    return None if value is None else VALUE_VERSION.to_bytes(2, "big") + encode(value, VALUE_VERSION)


def parse(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Decode a stored pair; None for an unknown key type.

    Raises:
        MalformedMessage: the bytes are damaged, or of an unknown version.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind >= len(_TYPES):
        return None
    key_type, value_type = _TYPES[kind]
    parsed: Key = decode(key_type, 0, key, 2)
    if value is None:
        return parsed, None
    version = int.from_bytes(value[:2], "big", signed=True)
    if version != VALUE_VERSION:
        raise MalformedMessage(
            f"{value_type.__name__} in version {version}, but {VALUE_VERSION} is the only one known here"
        )
    decoded: Value = decode(value_type, version, value, 2)
    return parsed, decoded
