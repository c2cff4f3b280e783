"""A snapshot of the cluster's metadata, as Kafka writes it (KIP-630).

Here: the file's name, an image as records and batches of a file, and back.
Not here: the files (`quorum.metadata_snapshots`). Header and footer detect a truncated file. `kafka-dump-log
--cluster-metadata-decoder` reads it.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.features import METADATA_VERSION
from busway_bus.metadata.image import BrokerImage, ClusterImage, TopicImage
from busway_bus.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    from_bytes,
    to_bytes,
)
from busway_protocol.compile import decode, encode
from busway_protocol.errors import MalformedMessage, ProtocolError
from busway_protocol.records.batch import iter_batches, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.schema import message
from busway_protocol.types import Int16, Int64

SUFFIX: Final = ".checkpoint"
RECORDS_PER_BATCH: Final = 64
"""Records encoded without a pause: about a millisecond."""
_CONTROL_KEY: Final = struct.Struct(">hh")
_HEADER, _FOOTER = 3, 4


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord:
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord:
    version: Int16 = 0


class SnapshotId(NamedTuple):
    """A point of the log: the first offset behind the snapshot, its last record's epoch."""

    offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}{SUFFIX}"

    @classmethod
    def from_name(cls, name: str) -> "SnapshotId | None":
        offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
        if not name.endswith(SUFFIX) or not offset.isdigit() or not epoch.isdigit():
            return None
        return cls(int(offset), int(epoch))


def records_of(image: ClusterImage) -> Iterator[Any]:
    names = sorted(
        image.features, key=lambda name: (name != METADATA_VERSION, name)
    )  # metadata.version first: it sets the format of the rest
    for name in names:
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    yield from map(_registration, image.brokers.values())
    for topic in image.topics.values():
        yield from _topic(topic)
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)


def _registration(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=address.host, port=address.port, security_protocol=address.security_protocol)
            for name, address in broker.addresses.items()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def _topic(topic: TopicImage) -> Iterator[Any]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition_index, partition in enumerate(topic.partitions):
        yield PartitionRecord(
            partition_id=partition_index,
            topic_id=topic.topic_id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing),
            adding_replicas=list(partition.adding),
            leader=partition.leader,
            leader_recovery_state=partition.recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories),
            eligible_leader_replicas=list(partition.elr) or None,
            last_known_elr=list(partition.last_known_elr) or None,
        )


def batches_of(image: ClusterImage, snapshot: SnapshotId, *, last_ms: int, now_ms: int) -> Iterator[bytes]:
    """Yield the file's content, a batch at a time.

    Args:
        last_ms: timestamp of its last record.
    """
    offset = 0

    def batch(values: Iterable[tuple[bytes | None, bytes]], *, control: bool = False) -> bytes:
        nonlocal offset
        builder = BatchBuilder(control=control)
        for key, value in values:
            builder.append(now_ms, key, value)
        built = builder.build(base_offset=offset, leader_epoch=snapshot.epoch)
        offset += builder.count
        return built

    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_ms)
    yield batch([(_CONTROL_KEY.pack(0, _HEADER), encode(header, 0))], control=True)
    records = records_of(image)
    while chunk := list(islice(records, RECORDS_PER_BATCH)):
        yield batch((None, to_bytes(record)) for record in chunk)
    yield batch([(_CONTROL_KEY.pack(0, _FOOTER), encode(SnapshotFooterRecord(), 0))], control=True)


def read_into(content: bytes, delta: Delta) -> None:
    """Apply a file to an empty image.

    Raises:
        CorruptBatch, MalformedMessage, BrokenHistory: it is damaged, or incomplete.
    """
    _read(content, delta)


def verify(content: bytes) -> None:
    """Check a file's checksums, header and footer; errors as `read_into`, without looking at the records."""
    _read(content, None)


def last_contained_ms(content: bytes) -> int:
    """Return the timestamp of the last record that a snapshot has, from the file's beginning; -1 if unknown."""
    try:
        for header, batch in iter_batches(content):
            verify_crc(batch, header)
            for record in decode_records(batch):
                return decode(SnapshotHeaderRecord, 0, record.value or b"", 0).last_contained_log_timestamp
    except ProtocolError:
        pass
    return -1


def _read(content: bytes, delta: Delta | None) -> None:
    types: list[int] = []
    end = 0
    for header, batch in iter_batches(content):
        verify_crc(batch, header)
        end += header.size_bytes
        if types[-1:] == [_FOOTER]:
            raise MalformedMessage("the snapshot continues behind its footer")
        for record in decode_records(batch) if header.is_control or delta is not None else ():
            if header.is_control:
                types.append(_control_type(record.key, record.value))
            elif delta is not None and record.value is not None:
                delta.apply(from_bytes(record.value))
        if types[:1] != [_HEADER]:
            raise MalformedMessage("the snapshot has no header")
    if end != len(content) or types[-1:] != [_FOOTER]:
        raise MalformedMessage("the snapshot is cut off: it has no footer")


def _control_type(key: bytes | None, value: bytes | None) -> int:
    if key is None or len(key) != _CONTROL_KEY.size or value is None:
        raise MalformedMessage("a control record of the snapshot has no type")
    kind: int = _CONTROL_KEY.unpack(key)[1]
    if kind in {_HEADER, _FOOTER}:
        decode(SnapshotHeaderRecord if kind == _HEADER else SnapshotFooterRecord, 0, value, 0)
    return kind
