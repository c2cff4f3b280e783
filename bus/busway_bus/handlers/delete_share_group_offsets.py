"""DeleteShareGroupOffsets (key 92, version 0): remove topics from an empty share group (KIP-932).

Behaviour: UNKNOWN_TOPIC_OR_PARTITION for a topic without state.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.metadata.features import SHARE_VERSION
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.share_groups import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)
FEATURE = SHARE_VERSION
NEEDS = (Access(Operation.DELETE, Resource.GROUP), Access(Operation.READ, Resource.TOPIC))


async def handle(request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> DeleteShareGroupOffsetsResponse:
    topics = context.node.image.topics
    named = {topic.topic_name: topics.get(topic.topic_name) for topic in request.topics}
    try:
        if not context.node.image.features.get(SHARE_VERSION, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        topic_ids = [topic.topic_id for topic in named.values() if topic is not None]
        outcomes = await context.node.share_groups.delete_offsets(request.group_id, topic_ids)
    except KafkaError as problem:
        return DeleteShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=problem.code, error_message=problem.message, responses=[]
        )
    rows = []
    for name, topic in named.items():
        problem_of = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        outcome = problem_of if topic is None else outcomes.get(topic.topic_id, problem_of)
        known = topic is not None and topic.topic_id in outcomes
        rows.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic.topic_id if topic is not None and known else ZERO_UUID,
                error_code=ErrorCode.NONE if outcome is None else outcome.code,
                error_message=None if outcome is None else outcome.message,
            )
        )
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, responses=rows)
