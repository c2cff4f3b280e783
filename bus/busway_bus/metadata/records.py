"""Record types of the cluster's metadata log, as Kafka's controller writes them.

Here: the types that one node needs, and their framing (frame version, type, version as varints); layouts of the
kafka-metadata 4.3.1 jar, read by `kafka-dump-log --cluster-metadata-decoder`.
Not here: applying them (`delta`).
"""

from dataclasses import field
from typing import Annotated, Any, Final

from busway_protocol.buffers import read_uvarint, uvarint
from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage
from busway_protocol.schema import info_of, message, struct
from busway_protocol.types import (
    Bool,
    BrokerId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    TopicName,
    UInt16,
    Uuid,
    nullable_since,
    since,
    tag,
)

TOPIC: Final = "__cluster_metadata"
TOPIC_ID_INT: Final = 1
_FRAME_VERSION: Final = 1


@struct
class BrokerEndpoint:
    name: Str
    host: Str
    port: UInt16
    security_protocol: Int16


@struct
class BrokerFeature:
    """A broker's supported levels of a feature."""

    name: Str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api_key=0, versions=(0, 4), flexible=0)
class RegisterBrokerRecord:
    """A broker registered with a new epoch; earlier registrations are void."""

    broker_id: BrokerId
    is_migrating_zk_broker: Annotated[Bool, since(2)] = False
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: NullableStr
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(3), tag(0)] = field(default_factory=list)
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(4), nullable_since(4), tag(1)] = None


@message(api_key=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord:
    broker_id: BrokerId
    broker_epoch: Int64


@message(api_key=2, versions=(0, 0), flexible=0)
class TopicRecord:
    name: TopicName
    topic_id: Uuid


@message(api_key=3, versions=(0, 2), flexible=0)
class PartitionRecord:
    """A partition was created, or its replicas or leader changed."""

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[BrokerId]
    isr: list[Int32]
    removing_replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    leader: BrokerId = -1
    leader_recovery_state: Annotated[Int8, tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], since(1)] = field(default_factory=list)
    eligible_leader_replicas: Annotated[list[BrokerId] | None, since(2), nullable_since(2), tag(1)] = None
    last_known_elr: Annotated[list[BrokerId] | None, since(2), nullable_since(2), tag(2)] = None


@message(api_key=4, versions=(0, 0), flexible=0)
class ConfigRecord:
    """A setting was set; null removes it."""

    resource_type: Int8
    resource_name: Str
    name: Str
    value: NullableStr


@message(api_key=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord:
    """Changed fields of a partition; null, -1 and for the leader -2 mean unchanged."""

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Annotated[list[BrokerId] | None, tag(0)] = None
    leader: Annotated[BrokerId, tag(1)] = -2
    replicas: Annotated[list[BrokerId] | None, tag(2)] = None
    removing_replicas: Annotated[list[BrokerId] | None, tag(3)] = None
    adding_replicas: Annotated[list[BrokerId] | None, tag(4)] = None
    leader_recovery_state: Annotated[Int8, tag(5)] = -1
    directories: Annotated[list[Uuid] | None, since(1), nullable_since(1), tag(8)] = None
    eligible_leader_replicas: Annotated[list[BrokerId] | None, since(2), nullable_since(2), tag(6)] = None
    last_known_elr: Annotated[list[BrokerId] | None, since(2), nullable_since(2), tag(7)] = None


@message(api_key=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord:
    """A broker was fenced; written before metadata.version 6."""

    id: BrokerId
    epoch: Int64


@message(api_key=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord:
    """A broker was unfenced; written before metadata.version 6."""

    id: BrokerId
    epoch: Int64


@message(api_key=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord:
    topic_id: Uuid


@message(api_key=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord:
    name: Str
    feature_level: Int16


@message(api_key=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord:
    """All producer ids below `next_producer_id` are allocated."""

    broker_id: BrokerId
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(api_key=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord:
    """Changed fields of a registration; 0, no directories and null mean unchanged.

    `fenced` is 1 or -1 (unfenced), `in_controlled_shutdown` is 1.
    """

    broker_id: BrokerId
    broker_epoch: Int64
    fenced: Annotated[Int8, tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, since(1), tag(1)] = 0
    log_dirs: Annotated[list[Uuid], since(2), tag(2)] = field(default_factory=list)
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(3), nullable_since(3), tag(3)] = None


@message(api_key=28, versions=(0, 0), flexible=0)
class ClearElrRecord:
    """The eligible leader replicas of a topic ended, or those of all if it is empty: the minimum of the ISR changed."""

    topic_name: TopicName


_TYPES: Final = {
    info_of(cls).api_key: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
    )
}


def to_bytes(record: Any) -> bytes:
    info = info_of(type(record))
    assert info.api_key is not None
    changes = isinstance(record, BrokerRegistrationChangeRecord)
    version = _first_version(record) if changes else info.max_version
    return uvarint(_FRAME_VERSION) + uvarint(info.api_key) + uvarint(version) + encode(record, version)


def _first_version(record: BrokerRegistrationChangeRecord) -> int:
    """Return the first version that has the changed fields, which Kafka writes."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def from_bytes(value: bytes) -> Any:
    """Decode a value of the metadata log.

    Raises:
        MalformedMessage: of unknown type, or damaged.
    """
    try:
        frame, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise MalformedMessage(f"a metadata record of {len(value)} bytes, too few for its type") from None
    if frame != _FRAME_VERSION or key not in _TYPES:
        raise MalformedMessage(f"metadata record of type {key} in frame version {frame} is not known")
    info = info_of(_TYPES[key])
    if not info.min_version <= version <= info.max_version:
        raise MalformedMessage(
            f"{_TYPES[key].__name__} in version {version}, but {info.max_version} is the last one known here"
        )
    return decode(_TYPES[key], version, value, position)
