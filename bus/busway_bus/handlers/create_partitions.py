"""CreatePartitions (key 37, versions 0-3): add partitions to topics (KIP-195).

Versions: 2 is flexible, 3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599), which does not happen here.
Behaviour: the count is the new total; validate_only checks without creating.
*Not supported*: more partitions for the topics of offsets and of transactions, whose groups and ids they would move.
"""

from collections import Counter
from typing import Final

from busway_bus.controller.topics import CreatePartitions, PartitionCount
from busway_bus.handlers.common.context import RequestContext
from busway_bus.handlers.common.controller_batches import request_each
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)
NEEDS = (Access(Operation.ALTER, Resource.TOPIC),)
_TWICE: Final = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Extend each topic independently. A repeated one is refused."""
    node = context.node
    counts = Counter(topic.name for topic in request.topics)
    growths = [_growth(topic) for topic in request.topics if counts[topic.name] == 1]

    def command(chunk: tuple[PartitionCount, ...]) -> CreatePartitions:
        return CreatePartitions(topics=chunk, validate_only=request.validate_only)

    replies = await request_each(node.controller, growths, command, context.for_controller)
    outcomes = dict(zip((topic.name for topic in growths), replies, strict=True))
    results = []
    for name in counts:
        code, text = ErrorCode.NONE, None
        try:
            reply = outcomes.get(name, _TWICE)
            if isinstance(reply, KafkaError):
                raise reply
            if not request.validate_only:
                node.check_online(reply)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        results.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=text))
    return CreatePartitionsResponse(results=results)


def _growth(topic: CreatePartitionsTopic) -> PartitionCount:
    assignments = topic.assignments
    return PartitionCount(
        name=topic.name,
        count=topic.count,
        assignments=(
            None if assignments is None else tuple(tuple(assignment.broker_ids) for assignment in assignments)
        ),
    )
