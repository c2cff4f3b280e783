"""DescribeQuorum (key 55, versions 0-2) of a controller: the metadata log's voters, with their progress (KIP-595).

Versions: 1 has fetch times (KIP-836), 2 texts, directories and the controllers' addresses (KIP-853).
Behaviour: only the leader answers; others return NOT_LEADER_OR_FOLLOWER with its address. A request must have the
metadata log's partition alone; otherwise every part is refused.
"""

from collections.abc import Callable

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.describe_quorum import TEXTS_SINCE, not_hosted
from busway_bus.handlers.for_controllers.services import ControllerServices, services
from busway_bus.metadata.records import TOPIC
from busway_bus.quorum.progress import Progress
from busway_bus.quorum.voters import ReplicaKey
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER),)


def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    node = services(context)
    hosted = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    is_ours = hosted == [(TOPIC, 0)]
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(node, context.api_version)
                if is_ours
                else not_hosted(partition.partition_index, context.api_version)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    leads = is_ours and node.quorum.leading
    nodes = [
        Node(node_id=voter, listeners=[Listener(name=node.listener, host=host, port=port)])
        for voter, (host, port) in node.addresses.items()
    ]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=topics,
        nodes=nodes if leads and context.api_version >= TEXTS_SINCE else [],
    )


def _quorum(node: ControllerServices, version: int) -> PartitionData:
    core = node.quorum.core
    leadership = core.replica.leadership
    if leadership is None:
        text = (
            "For requests intended only for the leader, this error indicates that the broker is not the current leader."
        )
        return PartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message=text if version >= TEXTS_SINCE else "",
            leader_id=core.leader_id,
            leader_epoch=core.epoch,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
    now_ms, me, voters = node.machine.wall_ms(), core.replica.me, core.replica.voters
    followers = leadership.followers
    state = _state(version, node.quorum.clock_skew_ms)
    own = Progress(end_offset=core.log.end_offset, fetched_ms=now_ms, caught_up_ms=now_ms)
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=me.id,
        leader_epoch=core.epoch,
        high_watermark=-1 if leadership.high_watermark is None else leadership.high_watermark,
        current_voters=[
            _state(version, 0)(key, own) if key.id == me.id else state(key, followers.voters[key.id])
            for voter in voters.ids
            if (key := voters.key(voter)) is not None
        ],
        observers=[state(key, progress) for key, progress in followers.observers.items()],
    )


def _state(version: int, skew_ms: int) -> Callable[[ReplicaKey, Progress], ReplicaState]:
    """Make a replica's builder; `skew_ms` is added to its monotonic times."""

    def state(key: ReplicaKey, progress: Progress) -> ReplicaState:
        return ReplicaState(
            replica_id=key.id,
            replica_directory_id=key.directory_id if version >= TEXTS_SINCE else ZERO_UUID,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=progress.fetched_ms + skew_ms if progress.fetched_ms >= 0 else -1,
            last_caught_up_timestamp=progress.caught_up_ms + skew_ms if progress.caught_up_ms >= 0 else -1,
        )

    return state
