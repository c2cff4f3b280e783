"""DeleteTopics (key 20, versions 1-6): delete topics with all their records.

Versions: 4 is flexible, 5 has error texts, 6 takes ids (KIP-516).
Behaviour: each topic for itself; delete.topic.enable=false refuses all.
*Not supported*: deleting the broker's own topics.
"""

from collections import Counter

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
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete one after the other."""
    wanted = request.topics
    if context.api_version < STATES_SINCE:
        wanted = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    results = []
    named = Counter(topic.name or context.node.image.names.get(topic.topic_id) for topic in wanted)
    done: set[str] = set()
    for topic in wanted:
        name = topic.name if topic.name is not None else context.node.image.names.get(topic.topic_id)
        known = context.node.image.topics.get(name or "")
        topic_id = known.topic_id if known else topic.topic_id
        code, text = ErrorCode.NONE, None
        if name is not None and name in done:
            continue
        done.add(name or "")
        try:
            if topic.name is not None and topic.topic_id != ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topic {name} is given by name and by id; give one of them"
                )
            if name is not None and named[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named twice in one request")
            await _one(name, context)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text))
    return DeleteTopicsResponse(responses=results)


async def _one(name: str | None, context: RequestContext) -> None:
    if not context.node.config.get("delete.topic.enable"):
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if name in INTERNAL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is the broker's own and cannot be deleted")
    await context.node.metadata.run(lambda image: delete(image, name))
