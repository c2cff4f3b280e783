"""ShareAcknowledge (key 79, versions 1-2): acknowledge records of a share group.

Versions: 2 renews locks, and returns their duration (KIP-1222).
Behaviour: responds once durable; a refused or failed acknowledgement changes nothing in its partition. The final epoch
ends the member's session, and releases its records (KIP-932).
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.share_acknowledgements import Acknowledging, Leaders, Refusal, check_member
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_bus.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

API = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS = (1, 2)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))


async def handle(request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
    try:
        group_id, member_id = check_member(context, request.group_id, request.member_id)
        session = _session(request, context, group_id, member_id)
    except KafkaError as problem:
        return ShareAcknowledgeResponse(
            throttle_time_ms=0,
            error_code=problem.code,
            error_message=problem.message,
            responses=[],
            node_endpoints=[],
        )
    acknowledging = Acknowledging(context, group_id, member_id, renews=request.is_renew_ack)
    try:
        await acknowledging.begin(request.topics)
        outcomes = await acknowledging.finish()
    finally:
        if request.share_session_epoch == FINAL_EPOCH:
            context.node.shares.end(session)
    leaders = Leaders(context)
    responses = _topics(outcomes, leaders)
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.node.shares.limits(group_id).lock_ms,
        responses=responses,
        node_endpoints=leaders.endpoints,
    )


def _session(request: ShareAcknowledgeRequest, context: RequestContext, group_id: str, member_id: str) -> ShareSession:
    sessions, epoch = context.node.shares.sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with ShareFetch")
    if epoch == FINAL_EPOCH:
        return sessions.find(group_id, member_id)
    return sessions.resume(group_id, member_id, epoch)


def _topics(outcomes: dict[TopicIdPartition, Refusal], leaders: Leaders) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    for partition, problem in outcomes.items():
        topic = topics.setdefault(partition[0], ShareAcknowledgeTopicResponse(topic_id=partition[0], partitions=[]))
        topic.partitions.append(
            AcknowledgedPartition(
                partition_index=partition[1],
                error_code=ErrorCode.NONE if problem is None else problem.code,
                error_message=None if problem is None else problem.message,
                current_leader=leaders.of(partition, problem),
            )
        )
    return list(topics.values())
