"""FindCoordinator (key 10, versions 0-6): which broker looks after a group or a transactional id.

Versions: 1 has a key type, 3 is flexible, 4 asks for many at once (KIP-699), 6 knows share groups (KIP-932).
Behaviour: the leader of the partition that keeps a key coordinates it; the topic of offsets, or of transactions, is made when somebody asks
first. While that partition has no leader, COORDINATOR_NOT_AVAILABLE.
*Not supported*: share groups, refused with INVALID_REQUEST.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from busway_bus.coordinator.placement import partition_for
from busway_bus.handlers.context import NodeServices, RequestContext
from busway_bus.kernel.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

log = logging.getLogger("busway.coordinator")

API = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)
NEEDS = (Access(Operation.DESCRIBE, Resource.GROUP), Access(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID))
BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1
TOPICS: Final[Mapping[int, str]] = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Answer every key."""
    missing, ensure = "", _ensure(request.key_type, context.node)
    if ensure is not None:
        try:
            await ensure()
        except KafkaError as problem:
            missing = problem.message or problem.code.name
            log.error("%s cannot be made: %s", TOPICS[request.key_type], missing)
    if context.api_version >= BATCHED_SINCE:
        coordinators = [_served(key, request.key_type, missing, context) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=coordinators)
    answer = _served(request.key, request.key_type, missing, context)
    text = answer.error_message or ErrorCode(answer.error_code).name  # as Kafka fills it in these versions
    return FindCoordinatorResponse(
        error_code=answer.error_code, error_message=text, node_id=answer.node_id, host=answer.host, port=answer.port
    )


def _ensure(key_type: int, node: NodeServices) -> Callable[[], Awaitable[None]] | None:
    """What makes sure that there are coordinators of this type; None where there are none."""
    if key_type == GROUP:
        return node.groups.ensure
    return node.transactions.ensure if key_type == TRANSACTION else None


def _served(key: str, key_type: int, missing: str, context: RequestContext) -> Coordinator:
    """The coordinator, unless there are none of this type."""
    code, text = ErrorCode.NONE, ""
    if key_type not in TOPICS:
        code, text = ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served by this version"
    elif missing:
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, missing
    if code is not ErrorCode.NONE:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
    return _coordinator(key, TOPICS[key_type], context)


def _coordinator(key: str, topic_name: str, context: RequestContext) -> Coordinator:
    """The leader of the partition that keeps the key."""
    image = context.node.image
    topic = image.topics.get(topic_name)
    partition = None if topic is None else topic.partitions[partition_for(key, len(topic.partitions))]
    address = None if partition is None else image.address(partition.leader, context.listener)
    if partition is None or address is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message="")
    return Coordinator(key=key, node_id=partition.leader, host=address.host, port=address.port)
