"""FindCoordinator (key 10, versions 0-6): coordinators of groups, transactional ids and share partitions.

Versions: 1 has a key type, 3 is flexible, 4 has many keys (KIP-699), 6 has share groups (KIP-932).
Behaviour: the coordinator is the leader of the partition that keeps a key; the first request creates the topic. While
that partition has no leader, COORDINATOR_NOT_AVAILABLE. A share partition's key is group:topic id:partition; while
`share.version` is 0 that type is INVALID_REQUEST.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from busway_bus.coordinator.placement import keeper_of
from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.groups_classic import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

logger = logging.getLogger("busway.coordinator")
_SHARE_KEY: Final = re.compile(r"(.+):[\w-]{22}(?:==)?:[+-]?\d{1,10}\Z", re.ASCII | re.DOTALL)

API = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)
NEEDS = (
    Access(Operation.DESCRIBE, Resource.GROUP),
    Access(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),
    Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),
)
BATCHED_SINCE = 4
SHARE_SINCE = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS: Final[Mapping[int, str]] = {
    GROUP: OFFSETS_TOPIC,
    TRANSACTION: TRANSACTIONS_TOPIC,
    SHARE: SHARE_STATE_TOPIC,
}


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    missing, ensure = "", _ensure(request, context)
    if ensure is not None:
        try:
            await ensure()
        except KafkaError as problem:
            missing = problem.message or problem.code.name
            waits = problem.code is ErrorCode.INVALID_REPLICATION_FACTOR  # for brokers that start
            logger.log(
                logging.INFO if waits else logging.ERROR, "%s cannot be made: %s", TOPICS[request.key_type], missing
            )
    if context.api_version >= BATCHED_SINCE:
        coordinators = [_served(key, request.key_type, missing, context) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=coordinators)
    answer = _served(request.key, request.key_type, missing, context)
    text = answer.error_message or ErrorCode(answer.error_code).name  # as Kafka in these versions
    return FindCoordinatorResponse(
        error_code=answer.error_code, error_message=text, node_id=answer.node_id, host=answer.host, port=answer.port
    )


def _ensure(request: FindCoordinatorRequest, context: RequestContext) -> Callable[[], Awaitable[None]] | None:
    """Return the call that creates this type's topic; None if unnecessary."""
    node = context.node
    if request.key_type == GROUP:
        return node.groups.ensure
    if request.key_type == SHARE:
        wanted = _shares(context) and any(map(_is_share_key, request.coordinator_keys))
        return node.share_states.ensure if wanted else None
    return node.transactions.ensure if request.key_type == TRANSACTION else None


def _shares(context: RequestContext) -> bool:
    return context.api_version >= SHARE_SINCE and context.node.image.features.get(SHARE_VERSION, 0) > 0


def _is_share_key(key: str) -> bool:
    match = _SHARE_KEY.match(key)
    return match is not None and bool(match[1].strip())


def _served(key: str, key_type: int, missing: str, context: RequestContext) -> Coordinator:
    code, text = ErrorCode.NONE, ""
    if key_type not in TOPICS or (key_type == SHARE and not _shares(context)):
        code, text = ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served by this version"
    elif key_type == SHARE and not _is_share_key(key):
        code, text = ErrorCode.INVALID_REQUEST, f"{key!r} is not group:topic id:partition"
    elif missing:
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, missing
    if code is not ErrorCode.NONE:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
    return _coordinator(key, TOPICS[key_type], context)


def _coordinator(key: str, topic_name: str, context: RequestContext) -> Coordinator:
    image = context.node.image
    partition = keeper_of(image, topic_name, key)
    address = None if partition is None else image.address(partition.leader, context.listener)
    if partition is None or address is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message="")
    return Coordinator(key=key, node_id=partition.leader, host=address.host, port=address.port)
