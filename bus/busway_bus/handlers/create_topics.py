"""CreateTopics (key 19, versions 2-7): create topics.

Versions: 4 accepts -1 for the defaults (KIP-464), 5 is flexible and answers with the settings (KIP-525), 7 with the topic id.
Behaviour: each topic for itself; validate_only checks without creating. Texts are Kafka's.
*Not supported*: tiered storage, which is refused as by a Kafka without it.
"""

from collections import Counter

from busway_bus.controller.reassign import check_replicas
from busway_bus.controller.topics import create
from busway_bus.handlers.config_entries import ConfigEntry, Source, topic_entries
from busway_bus.handlers.context import NodeServices, RequestContext
from busway_bus.handlers.topic_creation import DEFAULT, create_topic
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)
PARTITIONS_PER_REQUEST_MAX = 10_000
"""As in Kafka: more would make one batch of the metadata log too large."""
OWN_KEY = "durability"
"""Busway's own setting is told to those alone who set it: a client may hold any other name for an error."""


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create one after the other; of a name that comes twice nothing, and one row."""
    named = Counter(topic.name for topic in request.topics)
    many = sum(_count(topic, context) for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if many:
                text = "Excessively large number of partitions per request."
                raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
            results.append(await _one(topic, request.validate_only, context))
        except KafkaError as problem:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=problem.code, error_message=problem.message, configs=[]
                )
            )
    return CreateTopicsResponse(topics=results)


def _count(topic: CreatableTopic, context: RequestContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    default: int = context.node.config.get("num.partitions")
    return default if topic.num_partitions == DEFAULT else topic.num_partitions


async def _one(topic: CreatableTopic, validate_only: bool, context: RequestContext) -> CreatableTopicResult:
    node = context.node
    partitions, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments and topic.name not in node.image.topics:
        _check_assignments(topic, node.node_id)
        partitions, factor = len(topic.assignments), 1
    configs = {config.name: config.value for config in topic.configs}
    if validate_only:
        count, topic_id = _count(topic, context), node.machine.uuid4()
        create(
            node.image,
            topic.name,
            partitions=count,
            replication_factor=1 if factor == DEFAULT else factor,
            configs=configs,
            node_id=node.node_id,
            topic_id=topic_id,
            directory_id=node.directory_id,
        )
    else:
        made = await create_topic(node, topic.name, partitions=partitions, replication_factor=factor, configs=configs)
        topic_id, count = made.topic_id, len(made.partitions)
        configs = dict(node.image.topic_configs(topic.name))
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
                config_source=_source(entry, node),
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(node.config, own)
            if entry.name != OWN_KEY or OWN_KEY in own
        ],
    )


def _source(entry: ConfigEntry, node: NodeServices) -> Source:
    """Here any broker setting behind a topic's counts as given, where DescribeConfigs looks at the first alone: as in Kafka."""
    given = any(synonym in node.config.given for synonym in TOPIC_CONFIGS[entry.name].synonyms)
    return Source.STATIC_BROKER if entry.source is Source.DEFAULT and given else entry.source


def _check_assignments(topic: CreatableTopic, node_id: int) -> None:
    given = "A manual partition assignment was specified, but"
    if topic.replication_factor != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{given} replication factor was not set to -1.")
    if topic.num_partitions != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{given} numPartitions was not set to -1.")
    numbers: set[int] = set()
    for assignment in topic.assignments:
        number = assignment.partition_index
        if number in numbers:
            text = f"Found multiple manual partition assignments for partition {number}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        numbers.add(number)
        check_replicas(assignment.broker_ids, node_id)
    if numbers != set(range(len(numbers))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
