"""ConsumerGroupHeartbeat (key 68, versions 0-1): a consumer group's member joins, stays, or leaves (KIP-848).

Versions: 1 has regular expressions, and member ids made by clients (KIP-1082).
Behaviour: the coordinator computes assignments from subscriptions; a member gets a partition once its previous owner
has reported it revoked. A large group is assigned in steps, until which its members keep their partitions. Racks do not
affect assignments, as with Kafka 4.3.1's server-side assignors: a member's rack is stored and described, a broker's is
only part of the metadata hash that detects changed topics (KIP-1101). A group may have classic members
(`group.consumer.migration.policy`); one of more than 1,000 members does not change while it has them. While
`group.version` is 0, as in older data directories, UNSUPPORTED_VERSION: `kafka-features --bootstrap-server … upgrade
--feature group.version=1` raises it.
"""

from uuid import UUID

from busway_bus.groups.modern.requests import ConsumerHeartbeat
from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.features import GROUP_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_modern import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)
NEEDS = (Access(Operation.READ, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TOPIC))
OWN_IDS_SINCE = 1
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


async def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat; respond once its effect is durable."""
    if not served(context):
        return _refused(ErrorCode.UNSUPPORTED_VERSION, None)
    fencing = context.node.groups.fencing
    try:
        _check(request, context)
        if request.member_epoch >= 0:
            fencing.request_received(
                context.peer, request.group_id, request.member_id
            )  # the answer may wait for the disk for long
        result = await context.node.groups.consumer_heartbeat(request.group_id, _heartbeat_of(request, context))
    except KafkaError as problem:
        return _refused(problem.code, problem.message)
    connections, key = context.node.groups.connections, (request.group_id, result.member_id)
    if request.member_epoch < 0:
        connections.forget(key)
    else:
        fencing.request_received(context.peer, *key, heartbeat=True, interval_ms=result.interval_ms)
    assignment = None
    if result.assigned is not None:
        topics = [TopicPartitions(topic_id=topic, partitions=list(held)) for topic, held in result.assigned.items()]
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=connections.heartbeat_ms(request.group_id, result.interval_ms),
        assignment=assignment,
    )


def served(context: RequestContext) -> bool:
    return context.node.image.features.get(GROUP_VERSION, 0) > 0


def _refused(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _check(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
    """Refuse invalid requests (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) in Kafka's order and words."""
    epoch = request.member_epoch
    if context.api_version >= OWN_IDS_SINCE or epoch > 0 or epoch == LEAVES:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            _refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            _refuse("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            _refuse("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        _refuse("InstanceId can't be null.")
    elif epoch < LEAVES_FOR_A_WHILE:
        _refuse("MemberEpoch is invalid.")
    assignors = context.node.config.get("group.consumer.assignors")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {known}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        _refuse(f"{name} can't be empty.")


def _refuse(text: str) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _heartbeat_of(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerHeartbeat:
    owned: dict[UUID, list[int]] | None = None
    if request.topic_partitions is not None:
        owned = {topic.topic_id: topic.partitions for topic in request.topic_partitions}
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        member_id=request.member_id or str(context.node.machine.uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
    )
