"""Encoding of the records of `__consumer_offsets`.

Here: keys and values, after a two-byte version.
Not here: layouts (`records`, `modern.records`, `share.records`), applying.
"""

from typing import Any, Final

from busway_bus.groups import records
from busway_bus.groups.modern import records as consumer_records
from busway_bus.groups.records import Change, GroupMetadataKey, Key, Layouts, OffsetCommitKey, OffsetCommitValue, Value
from busway_bus.groups.share import records as share_records
from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import info_of

LAYOUTS: Final[Layouts] = {**records.LAYOUTS, **consumer_records.LAYOUTS, **share_records.LAYOUTS}


def group_of(key: Key) -> str:
    group_id: str = key.group if isinstance(key, (OffsetCommitKey, GroupMetadataKey)) else key.group_id
    return group_id


def key_bytes(key: Key) -> bytes:
    return _number(key).to_bytes(2, "big") + encode(key, 0)


def _number(key: Key) -> int:
    key_type = info_of(type(key)).api_key
    assert key_type is not None
    return key_type


def value_bytes(key: Key, value: Value | None) -> bytes | None:
    if value is None:
        return None
    version = LAYOUTS[_number(key)][2]
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp >= 0:
        # Only version 1 has the expiry. It has no leader epoch, which clients that set an expiry do not know.
        version = 1
    return version.to_bytes(2, "big") + encode(value, version)


def parse(key: bytes, value: bytes | None) -> Change | None:
    """Decode a record; None for an unknown type of key.

    Raises:
        MalformedMessage
    """
    layout = LAYOUTS.get(int.from_bytes(key[:2], "big"))
    if layout is None:
        return None
    return decode(layout[0], 0, key, 2), None if value is None else _value(layout[1], value)


def _value(cls: type[Any], value: bytes) -> Value:
    version, info = int.from_bytes(value[:2], "big", signed=True), info_of(cls)
    if not info.min_version <= version <= info.max_version:
        raise MalformedMessage(
            f"{cls.__name__} in version {version}, but {info.max_version} is the last one known here"
        )
    return decode(cls, version, value, 2)
