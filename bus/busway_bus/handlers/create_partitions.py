"""CreatePartitions (key 37, versions 0-3): give topics more partitions (KIP-195).

Versions: 2 is flexible, 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599), which is not done here.
Behaviour: the count is the new total; validate_only checks without creating.
*Not supported*: assignments that name other brokers than this one.
"""

from busway_bus.controller.topics import grow
from busway_bus.handlers.context import RequestContext
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
    """Grow one topic after the other."""
    results = []
    for topic in request.topics:
        code, text = ErrorCode.NONE, None
        try:
            await _one(topic, request.validate_only, context)
        except KafkaError as problem:
            code, text = problem.code, problem.message
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text))
    return CreatePartitionsResponse(results=results)


async def _one(topic: CreatePartitionsTopic, validate_only: bool, context: RequestContext) -> None:
    node = context.node
    if any(assignment.broker_ids != [node.node_id] for assignment in topic.assignments or ()):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"only broker {node.node_id} is there to be assigned")
    if topic.name == "__consumer_offsets":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "growing the offsets topic would move groups to other partitions")
    if validate_only:
        grow(node.image, topic.name, partitions=topic.count, node_id=node.node_id, directory_id=node.directory_id)
        return
    await node.metadata.run(
        lambda image: grow(
            image, topic.name, partitions=topic.count, node_id=node.node_id, directory_id=node.directory_id
        )
    )
    if (topic_image := node.image.topics.get(topic.name)) is not None:
        node.replicas.local.check_online(topic_image.topic_id)
