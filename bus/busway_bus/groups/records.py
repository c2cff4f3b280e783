"""Records of offsets and classic groups in `__consumer_offsets`, as in Kafka.

Here: layouts of the kafka-group-coordinator 4.3.1 jar; `kafka-dump-log --offsets-decoder` reads them.
Not here: encoding (`record_serde`), applying.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final

from busway_protocol.schema import message, struct
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
"""The written version, as in Kafka 4.3. Newer ones are read."""


@message(api_key=1, versions=(0, 0))
class OffsetCommitKey:
    group: Str
    topic: Str
    partition: Int32


@message(api_key=1, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: Str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, since(4), tag(0), ignorable] = ZERO_UUID


@message(api_key=2, versions=(0, 0))
class GroupMetadataKey:
    group: Str


@struct
class MemberMetadata:
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
    protocol_type: Str
    generation: Int32
    protocol: NullableStr
    leader: NullableStr
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: list[MemberMetadata] = field(default_factory=list)


Key = Any
Value = Any
Change = tuple[Key, Value | None]
"""A record; None is a tombstone."""
Layouts = Mapping[int, tuple[type[Any], type[Any], int]]
LAYOUTS: Final[Layouts] = {
    0: (OffsetCommitKey, OffsetCommitValue, OFFSET_VALUE_VERSION),
    1: (OffsetCommitKey, OffsetCommitValue, OFFSET_VALUE_VERSION),
    2: (GroupMetadataKey, GroupMetadataValue, GROUP_VALUE_VERSION),
}
"""Key, value and the value's written version, by type of key."""
