"""ShareGroupHeartbeat (key 76, version 1): a share group's member joins, stays or leaves (KIP-932).

Versions: 1 is the first stable one.
Behaviour: the coordinator spreads partitions over the members, which may share them (the `simple` assignor). A
partition is assigned by a later heartbeat, once the share coordinator has initialized it. Epoch 0 joins, -1 leaves. A
member that is an epoch behind, or sends a full request, gets its assignment again, as the response may be lost; Kafka
does not repeat it.
"""

from busway_bus.groups.share.heartbeat import JOINING, LEAVING, ShareHeartbeat, ShareHeartbeatReply
from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.limits import SHARE_MEMBER_ID_CHARS_MAX
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

API = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS = (1, 1)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))


async def handle(request: ShareGroupHeartbeatRequest, context: RequestContext) -> ShareGroupHeartbeatResponse:
    groups = context.node.share_groups
    if not 0 < len(request.member_id) <= SHARE_MEMBER_ID_CHARS_MAX:
        return _refused(ErrorCode.INVALID_REQUEST, None)
    try:
        _check(request, context)
        reply = await groups.heartbeat(
            ShareHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                epoch=request.member_epoch,
                rack_id=request.rack_id,
                topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
                client_id=context.client_id or "",
                client_host=f"/{context.client_host}",
            )
        )
    except KafkaError as problem:
        return _refused(problem.code, problem.message)
    leaving = request.member_epoch == LEAVING
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=0 if leaving else groups.limits(request.group_id).heartbeat_interval_ms,
        assignment=_assignment(reply),
    )


def _refused(code: ErrorCode, text: str | None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, error_message=text, member_epoch=0, heartbeat_interval_ms=0
    )


def _check(request: ShareGroupHeartbeatRequest, context: RequestContext) -> None:
    if not context.node.image.features.get(SHARE_VERSION, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    problem = ""
    if not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch == JOINING and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVING:
        problem = "MemberEpoch is invalid."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _assignment(reply: ShareHeartbeatReply) -> Assignment | None:
    if reply.assignment is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in sorted(reply.assignment.items())
        ]
    )
