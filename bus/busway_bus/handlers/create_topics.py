"""CreateTopics (key 19, versions 2-7): create topics.

Versions: 4 accepts -1 for the defaults (KIP-464), 5 is flexible and answers with the settings (KIP-525), 7 with the topic id.
Behaviour: each topic for itself; validate_only checks without creating.
*Not supported*: assignments that name other brokers than this one.
"""

from collections import Counter

from busway_bus.controller.topics import create
from busway_bus.handlers.config_entries import topic_entries
from busway_bus.handlers.context import RequestContext
from busway_bus.handlers.topic_creation import DEFAULT, create_topic
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create one after the other."""
    names = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named twice in one request")
            results.append(await _one(topic, request.validate_only, context))
        except KafkaError as problem:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=problem.code, error_message=problem.message, configs=None
                )
            )
    return CreateTopicsResponse(topics=results)


async def _one(topic: CreatableTopic, validate_only: bool, context: RequestContext) -> CreatableTopicResult:
    node = context.node
    partitions, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if partitions != DEFAULT or factor != DEFAULT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give either assignments or numbers, not both")
        partitions, factor = _assigned(topic, node.node_id), 1
    configs = {config.name: config.value for config in topic.configs}
    if empty := [name for name, value in configs.items() if value is None]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{empty[0]} of topic {topic.name} has no value; leave it out for the default"
        )
    topic_id = ZERO_UUID
    if validate_only:
        create(
            node.image,
            topic.name,
            partitions=node.config.get("num.partitions") if partitions == DEFAULT else partitions,
            replication_factor=1 if factor == DEFAULT else factor,
            configs=configs,
            node_id=node.node_id,
            topic_id=ZERO_UUID,
            directory_id=node.directory_id,
        )
        count = node.config.get("num.partitions") if partitions == DEFAULT else partitions
    else:
        made = await create_topic(node, topic.name, partitions=partitions, replication_factor=factor, configs=configs)
        topic_id, count = made.topic_id, len(made.partitions)
    own = {name: value for name, value in configs.items() if value is not None}
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(node.config, own)
        ],
    )


def _assigned(topic: CreatableTopic, node_id: int) -> int:
    numbers = sorted(assignment.partition_index for assignment in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions assigned are not 0, 1, 2, …")
    if any(assignment.broker_ids != [node_id] for assignment in topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"only broker {node_id} is there to be assigned")
    return len(numbers)
