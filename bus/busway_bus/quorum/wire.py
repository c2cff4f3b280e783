"""Messages of the quorum, for the metadata log's partition alone.

Here: packing and unpacking, the check that a message is of this log.
Not here: decisions (`core`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT
from busway_bus.quorum.log_view import Behind, Diverging, LogView
from busway_bus.quorum.ready import QuorumRequest, QuorumResponse
from busway_bus.quorum.snapshot_wire import snapshot_error
from busway_bus.quorum.states import NOBODY, Election
from busway_bus.quorum.voters import ReplicaKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from busway_protocol.messages.metadata_snapshots import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    TopicSnapshotRequest,
)
from busway_protocol.messages.quorum import (
    BeginEpochPartition,
    BeginEpochTopic,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndEpochPartition,
    EndEpochTopic,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochPartitionResult,
    EpochTopicResult,
    PreferredCandidate,
    VotePartition,
    VotePartitionResult,
    VoteRequest,
    VoteResponse,
    VoteTopic,
    VoteTopicResult,
)
from busway_protocol.types import ZERO_UUID

TOPIC_ID: Final = UUID(int=TOPIC_ID_INT)
PARTITION: Final = 0


def is_addressed(voter_id: int, directory_id: UUID, me: ReplicaKey) -> bool:
    """Whether a request names this node as the voter, or no voter."""
    if voter_id < 0:
        return True
    return voter_id == me.id and directory_id in {ZERO_UUID, me.directory_id}


def refused(request: QuorumRequest, error: ErrorCode) -> QuorumResponse:
    match request:
        case VoteRequest():
            return VoteResponse(error_code=error, topics=[])
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(error_code=error, topics=[])
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(error_code=error, topics=[])
        case FetchRequest():
            return FetchResponse(error_code=error, responses=[])
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(error_code=error, topics=[])


def of_another_log(request: QuorumRequest) -> QuorumResponse:
    if isinstance(request, FetchSnapshotRequest) and _is_single(request):
        topic, partition = request.topics[0].name, request.topics[0].partitions[0].partition
        unknown = Election(epoch=0, leader_id=NOBODY)
        return snapshot_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown, topic=topic, partition=partition)
    return refused(request, ErrorCode.INVALID_REQUEST)


def _is_single(request: QuorumRequest) -> bool:
    return len(request.topics) == 1 and len(request.topics[0].partitions) == 1


def is_for_this_log(request: QuorumRequest) -> bool:
    if not _is_single(request):
        return False
    topic = request.topics[0]
    if isinstance(topic, TopicSnapshotRequest):
        return topic.name == TOPIC and topic.partitions[0].partition == PARTITION
    if isinstance(topic, FetchTopic):
        named = topic.topic_id == TOPIC_ID or (topic.topic_id == ZERO_UUID and topic.topic == TOPIC)
        return named and topic.partitions[0].partition == PARTITION
    return topic.topic_name == TOPIC and topic.partitions[0].partition_index == PARTITION


# Requests


def vote_request(
    cluster_id: str | None, voter: ReplicaKey, me: ReplicaKey, epoch: int, log: LogView, *, pre_vote: bool
) -> VoteRequest:
    partition = VotePartition(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=me.id,
        replica_directory_id=me.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=log.last_epoch,
        last_offset=log.end_offset,
        pre_vote=pre_vote,
    )
    topic = VoteTopic(topic_name=TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def begin_request(cluster_id: str | None, voter: ReplicaKey, leader_id: int, epoch: int) -> BeginQuorumEpochRequest:
    partition = BeginEpochPartition(
        partition_index=PARTITION, voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    topic = BeginEpochTopic(topic_name=TOPIC, partitions=[partition])
    return BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def end_request(
    cluster_id: str | None, leader_id: int, epoch: int, preferred: Sequence[ReplicaKey]
) -> EndQuorumEpochRequest:
    """Announce the leader's resignation, with its preferred successors in order."""
    partition = EndEpochPartition(
        partition_index=PARTITION,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[replica.id for replica in preferred],
        preferred_candidates=[
            PreferredCandidate(candidate_id=replica.id, candidate_directory_id=replica.directory_id)
            for replica in preferred
        ],
    )
    topic = EndEpochTopic(topic_name=TOPIC, partitions=[partition])
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic])


def fetch_request(
    cluster_id: str | None,
    me: ReplicaKey,
    epoch: int,
    log: LogView,
    *,
    high_watermark: int,
    max_wait_ms: int,
    max_bytes: int,
) -> FetchRequest:
    """Fetch from the end of this node's log, which is flushed."""
    partition = FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.last_epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=me.id),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )


def fetching_replica(request: FetchRequest) -> ReplicaKey:
    """Return the replica that fetches; a negative id is no replica."""
    replica_id = request.replica_id if request.replica_id >= 0 else request.replica_state.replica_id
    return ReplicaKey(replica_id, request.topics[0].partitions[0].replica_directory_id)


# Responses


def vote_response(error: ErrorCode, election: Election, *, granted: bool) -> VoteResponse:
    partition = VotePartitionResult(
        partition_index=PARTITION,
        error_code=error,
        leader_id=election.leader_id,
        leader_epoch=election.epoch,
        vote_granted=granted,
    )
    return VoteResponse(error_code=ErrorCode.NONE, topics=[VoteTopicResult(topic_name=TOPIC, partitions=[partition])])


def begin_response(error: ErrorCode, election: Election) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[_epoch_result(error, election)])


def end_response(error: ErrorCode, election: Election) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[_epoch_result(error, election)])


def _epoch_result(error: ErrorCode, election: Election) -> EpochTopicResult:
    partition = EpochPartitionResult(
        partition_index=PARTITION, error_code=error, leader_id=election.leader_id, leader_epoch=election.epoch
    )
    return EpochTopicResult(topic_name=TOPIC, partitions=[partition])


def fetch_response(
    error: ErrorCode,
    election: Election,
    *,
    log_start_offset: int,
    high_watermark: int | None = None,
    parted: Diverging | Behind | None = None,
) -> FetchResponse:
    """Build the response to a fetch without records, which the driver reads."""
    partition = PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=election.leader_id, leader_epoch=election.epoch),
        aborted_transactions=None,
        records=b"",
    )
    if isinstance(parted, Diverging):
        partition.diverging_epoch = EpochEndOffset(epoch=parted.end.epoch, end_offset=parted.end.offset)
    elif isinstance(parted, Behind):
        partition.snapshot_id = SnapshotId(end_offset=parted.snapshot.offset, epoch=parted.snapshot.epoch)
    return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])])


class KnownLeader(NamedTuple):
    """The part that all responses share: the error, and the leader and epoch that the other node knows."""

    error: int
    leader_id: int
    epoch: int


def leader_known_by(response: QuorumResponse) -> KnownLeader | None:
    """Extract the shared part; None if the response is refused as a whole, or not about one log."""
    if response.error_code != ErrorCode.NONE:
        return None
    if isinstance(response, FetchResponse):
        if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            return None
        fetched = response.responses[0].partitions[0]
        return KnownLeader(fetched.error_code, fetched.current_leader.leader_id, fetched.current_leader.leader_epoch)
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    if isinstance(response, FetchSnapshotResponse):
        part = response.topics[0].partitions[0]
        return KnownLeader(part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
    partition = response.topics[0].partitions[0]
    return KnownLeader(partition.error_code, partition.leader_id, partition.leader_epoch)
