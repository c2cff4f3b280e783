"""CreatePartitions (key 37, versions 0-3): give topics more partitions (KIP-195).

Versions: 2 is flexible, 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599), which is not done here.
Behaviour: the count is the new total; validate_only checks without creating.
*Not supported*: more partitions for the offsets topic, whose groups they would move.
"""

from collections import Counter

from busway_bus.controller.reassign import check_replicas
from busway_bus.controller.topics import grow
from busway_bus.handlers.context import RequestContext
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.metadata.image import ClusterImage
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


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Grow one topic after the other; one that comes twice not at all."""
    named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        code, text = ErrorCode.NONE, None
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            await _one(topic, request.validate_only, context)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text))
    return CreatePartitionsResponse(results=results)


async def _one(topic: CreatePartitionsTopic, validate_only: bool, context: RequestContext) -> None:
    node = context.node
    if topic.name == OFFSETS_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "growing the offsets topic would move groups to other partitions")

    def decide(image: ClusterImage) -> Decision[None]:
        grown = grow(image, topic.name, partitions=topic.count, node_id=node.node_id, directory_id=node.directory_id)
        _check_assignments(topic, topic.count - len(image.topics[topic.name].partitions), node.node_id)
        return grown

    if validate_only:
        decide(node.image)
    else:
        await node.metadata.run(decide)
        if (grown := node.image.topics.get(topic.name)) is not None:
            node.replicas.local.check_online(grown.topic_id)


def _check_assignments(topic: CreatePartitionsTopic, more: int, node_id: int) -> None:
    if topic.assignments is None:
        return
    if len(topic.assignments) != more:
        text = (
            f"Attempted to add {more} additional partition(s), but only {len(topic.assignments)} assignment(s) "
            "were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for assignment in topic.assignments:
        check_replicas(assignment.broker_ids, node_id)
