"""DeleteTopics (key 20, versions 1-6): delete topics with all their records.

Versions: 4 is flexible, 5 has error texts, 6 takes ids (KIP-516).
Behaviour: each topic for itself; delete.topic.enable=false refuses all. The topic of committed offsets can be deleted as in Kafka: its
groups end, and the next that asks for a coordinator has it made anew.
*Not supported*: nothing is left out.
"""

from collections import Counter
from uuid import UUID

from busway_bus.controller.topics import delete
from busway_bus.handlers.context import RequestContext
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
STATES_SINCE = 6


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete one after the other; one that comes twice not at all, and in one row."""
    wanted = request.topics
    if context.api_version < STATES_SINCE:
        wanted = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    meant = [topic.name or context.node.image.names.get(topic.topic_id) or topic.topic_id for topic in wanted]
    named = Counter(meant)
    results = []
    for same, topic in dict(zip(meant, wanted, strict=True)).items():
        name, topic_id = topic.name, topic.topic_id
        code, text = ErrorCode.NONE, None
        try:
            if named[same] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
            name, topic_id = await _one(topic, context)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text))
    return DeleteTopicsResponse(responses=results)


async def _one(topic: DeleteTopicState, context: RequestContext) -> tuple[str, UUID]:
    node = context.node
    if not node.config.get("delete.topic.enable"):
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    by_id = topic.topic_id != ZERO_UUID
    if topic.name is not None and by_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic.name is None and not by_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    name = node.image.names.get(topic.topic_id) if topic.name is None else topic.name
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    known = node.image.topics.get(name)
    await node.metadata.run(lambda image: delete(image, name))
    return name, ZERO_UUID if known is None else known.topic_id
