"""Snapshots of the metadata log."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    BrokerId,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Records,
    Str,
    TopicName,
    UInt16,
    Uuid,
    ignorable,
    since,
    tag,
)


@struct
class SnapshotId:
    """The first offset behind a snapshot, and the epoch of its last record."""

    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class PartitionSnapshotRequest:
    """A snapshot of one partition, from the byte `position` on."""

    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Annotated[Uuid, since(1), tag(0), ignorable] = ZERO_UUID


@struct
class TopicSnapshotRequest:
    name: TopicName
    partitions: list[PartitionSnapshotRequest]


@message(api_key=59, direction="request", versions=(0, 1), flexible=0)
class FetchSnapshotRequest:
    """Request for a part of a snapshot (KIP-630), with the follower's directory from version 1 on (KIP-853)."""

    cluster_id: Annotated[NullableStr, tag(0)] = None
    replica_id: BrokerId = -1
    max_bytes: Int32 = 2_147_483_647
    topics: list[TopicSnapshotRequest]


@struct
class SnapshotLeader:
    leader_id: BrokerId = 0
    leader_epoch: Int32 = 0


@struct
class PartitionSnapshot:
    """A part of a snapshot at `position`, in bytes that may begin and end inside a batch."""

    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId
    current_leader: Annotated[SnapshotLeader, tag(0)] = field(default_factory=SnapshotLeader)
    size: Int64
    position: Int64
    unaligned_records: Records


@struct
class TopicSnapshot:
    name: TopicName
    partitions: list[PartitionSnapshot]


@struct
class SnapshotNodeEndpoint:
    node_id: Annotated[BrokerId, since(1)]
    host: Annotated[Str, since(1)]
    port: Annotated[UInt16, since(1)]


@message(api_key=59, direction="response", versions=(0, 1), flexible=0)
class FetchSnapshotResponse:
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16
    topics: list[TopicSnapshot]
    node_endpoints: Annotated[list[SnapshotNodeEndpoint], since(1), tag(0)] = field(default_factory=list)
