"""DeleteTopics (key 20, versions 1-6): delete topics with all their records.

Versions: 4 is flexible, 5 has error texts, 6 takes ids (KIP-516).
Behaviour: topics are independent; delete.topic.enable=false refuses all. As in Kafka the offsets topic can be deleted:
its groups end, and the next FindCoordinator creates it again.
*Not supported*: deleting the topic of transactions (INVALID_REQUEST), without which open ones would never end.
"""

from collections import Counter
from uuid import UUID

from busway_bus.controller.topics import DeleteTopics
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.controller_batches import request_each
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)
NEEDS = (Access(Operation.DELETE, Resource.TOPIC), Access(Operation.DESCRIBE, Resource.TOPIC))
STATES_SINCE = 6


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete topics. A repeated one is refused in one row."""
    node, topics = context.node, request.topics
    if context.api_version < STATES_SINCE:
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    keys = [topic.name or node.image.names.get(topic.topic_id) or topic.topic_id for topic in topics]
    counts = Counter(keys)
    refused: dict[str | UUID, KafkaError] = {}
    states: dict[str | UUID, DeleteTopicState] = dict(zip(keys, topics, strict=True))
    for key, topic in states.items():
        problem = _problem(topic, twice=counts[key] > 1, enabled=node.config.get("delete.topic.enable"))
        if problem is not None:
            refused[key] = problem
    deletions = {
        key: topic.topic_id if topic.name is None else topic.name for key, topic in states.items() if key not in refused
    }
    outcomes: dict[str | UUID, tuple[str, UUID] | KafkaError] = {**refused}
    replies = await request_each(
        node.controller, tuple(deletions.values()), lambda chunk: DeleteTopics(topics=chunk), context.for_controller
    )
    outcomes.update(zip(deletions, replies, strict=True))
    return DeleteTopicsResponse(responses=[_result(topic, outcomes[key]) for key, topic in states.items()])


def _problem(topic: DeleteTopicState, *, twice: bool, enabled: bool) -> KafkaError | None:
    """Return why a topic is refused before a lookup."""
    by_id = topic.topic_id != ZERO_UUID
    if twice:
        kind = "id" if topic.name is None else "name"
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if not enabled:
        return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if topic.name is not None and by_id:
        return KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic.name is None and not by_id:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    return None


def _result(topic: DeleteTopicState, outcome: tuple[str, UUID] | KafkaError) -> DeletableTopicResult:
    if isinstance(outcome, KafkaError):
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=outcome.code, error_message=outcome.message
        )
    name, topic_id = outcome
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
