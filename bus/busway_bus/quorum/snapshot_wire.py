"""Messages for fetching a snapshot of the metadata log (KIP-630).

Here: packing and unpacking.
Not here: decisions (`core`), the other messages of the quorum (`wire`).
"""

from busway_bus.metadata.records import TOPIC
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import ReadSnapshot
from busway_bus.quorum.states import Election
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages import metadata_snapshots
from busway_protocol.messages.metadata_snapshots import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    SnapshotLeader,
    TopicSnapshot,
    TopicSnapshotRequest,
)

BOOTSTRAP = SnapshotId(0, 0)
"""Kafka's id of a snapshot that no log precedes. It is never fetched."""


def snapshot_request(
    cluster_id: str | None, me: ReplicaKey, epoch: int, snapshot: SnapshotId, *, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    """Fetch a part of a snapshot, from the byte `position` on."""
    partition = PartitionSnapshotRequest(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=metadata_snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    topic = TopicSnapshotRequest(name=TOPIC, partitions=[partition])
    return FetchSnapshotRequest(cluster_id=cluster_id, replica_id=me.id, max_bytes=max_bytes, topics=[topic])


def requested_snapshot(request: FetchSnapshotRequest) -> SnapshotId:
    requested = request.topics[0].partitions[0].snapshot_id
    return SnapshotId(requested.end_offset, requested.epoch)


def requesting_replica(request: FetchSnapshotRequest) -> ReplicaKey:
    """Return the replica that fetches; a negative id is no replica."""
    return ReplicaKey(request.replica_id, request.topics[0].partitions[0].replica_directory_id)


def readable_part(request: FetchSnapshotRequest, log: LogView, bytes_max: int) -> ReadSnapshot | ErrorCode:
    """Locate the requested part, or return the error.

    The order of the checks is that of Kafka's `KafkaRaftClient.handleFetchSnapshotRequest`. `bytes_max` bounds what the
    request allows.
    """
    snapshot, position = requested_snapshot(request), request.topics[0].partitions[0].position
    size = log.snapshots.get(snapshot)
    if size is None or snapshot == BOOTSTRAP:
        return ErrorCode.SNAPSHOT_NOT_FOUND
    if not 0 <= position < size:
        return ErrorCode.POSITION_OUT_OF_RANGE
    if request.max_bytes < 0:
        return ErrorCode.INVALID_REQUEST
    return ReadSnapshot(snapshot, position, min(request.max_bytes, bytes_max, size - position))


def snapshot_error(
    error: ErrorCode, election: Election, *, topic: str = TOPIC, partition: int = 0
) -> FetchSnapshotResponse:
    return snapshot_response(error, election, SnapshotId(0, 0), size=0, position=0, topic=topic, partition=partition)


def snapshot_response(
    error: ErrorCode,
    election: Election,
    snapshot: SnapshotId,
    *,
    size: int,
    position: int,
    topic: str = TOPIC,
    partition: int = 0,
) -> FetchSnapshotResponse:
    """Build the response without bytes, which the driver reads."""
    part = PartitionSnapshot(
        index=partition,
        error_code=error,
        snapshot_id=metadata_snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=SnapshotLeader(leader_id=election.leader_id, leader_epoch=election.epoch),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    return FetchSnapshotResponse(error_code=ErrorCode.NONE, topics=[TopicSnapshot(name=topic, partitions=[part])])
