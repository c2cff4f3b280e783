"""CreateTopics (key 19, versions 2-7): create topics.

Versions: 4 accepts -1 for the defaults (KIP-464), 5 is flexible and returns the settings (KIP-525), 7 the topic id.
Behaviour: topics are independent; validate_only checks without creating. Texts are Kafka's. An internal topic has the
broker's partitions and settings, whatever the request says.
*Not supported*: tiered storage, which is refused as by a Kafka without it.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from typing import Final, TypeAlias

from busway_bus.controller.topics import NewTopic
from busway_bus.handlers.common.config_entries import ConfigEntry, Source, in_force, topic_entries
from busway_bus.handlers.common.context import Large, NodeServices, RequestContext, finished
from busway_bus.handlers.common.topic_creation import create_topics
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS, fixed_configs
from busway_bus.metadata.image import TopicImage
from busway_bus.security.operations import Access, Operation, Resource
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
NEEDS = (
    Access(Operation.CREATE, Resource.CLUSTER),
    Access(Operation.CREATE, Resource.TOPIC),
    Access(Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
)
_TWICE: Final = (NewTopic(name=""), KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
DESCRIBED_AT_ONCE: Final = 8
OWN_KEY = "durability"
"""Busway's own setting, returned only if requested: clients may refuse unknown names."""
_Described: TypeAlias = dict[tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]], list[CreatableTopicConfigs]]
"""Settings by a topic's own and fixed ones."""


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse | Large:
    """Create topics. A repeated name is refused in one row."""
    counts = Counter(topic.name for topic in request.topics)
    new_topics = [_new_topic(topic) for topic in request.topics if counts[topic.name] == 1]
    replies = await create_topics(
        context.node, tuple(new_topics), context.for_controller, validate_only=request.validate_only
    )
    outcomes = dict(zip((topic.name for topic in new_topics), zip(new_topics, replies, strict=True), strict=True))
    steps = _response([(name, *outcomes.get(name, _TWICE)) for name in counts], context)
    return await context.in_slices(steps) if len(counts) > DESCRIBED_AT_ONCE else finished(steps)


def _response(
    outcomes: list[tuple[str, NewTopic, TopicImage | KafkaError]], context: RequestContext
) -> Generator[None, None, CreateTopicsResponse]:
    """Describe the topics, each with all its settings; yield after each."""
    results = []
    described: _Described = {}
    for name, topic, reply in outcomes:
        if isinstance(reply, KafkaError):
            code, text = reply.code, reply.message
            results.append(CreatableTopicResult(name=name, error_code=code, error_message=text, configs=[]))
        else:
            results.append(_created(reply, topic, context, described))
        yield
    return CreateTopicsResponse(topics=results)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments
        ),
        configs={config.name: config.value for config in topic.configs},
    )


def _created(
    created: TopicImage, new_topic: NewTopic, context: RequestContext, described: _Described
) -> CreatableTopicResult:
    node = context.node
    topic = node.image.topics.get(created.name)
    exists = topic is not None and topic.topic_id == created.topic_id
    settings = node.image.topic_configs(created.name) if exists else new_topic.configs
    own = {name: value for name, value in settings.items() if value is not None}
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=_settings(own, fixed_configs(created.name), node, described),
    )


def _settings(
    own: Mapping[str, str], fixed: Mapping[str, str], node: NodeServices, described: _Described
) -> list[CreatableTopicConfigs]:
    """Describe a topic's settings, once for all topics of a request that have the same."""
    key = (frozenset(own.items()), frozenset(fixed.items()))
    settings = described.get(key)
    if settings is None:
        settings = described[key] = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=_source(entry, node),
                is_sensitive=entry.sensitive,
            )
            for entry in in_force(topic_entries(node.config, own, fixed), node.image)
            if entry.name != OWN_KEY or OWN_KEY in own
        ]
    return settings


def _source(entry: ConfigEntry, node: NodeServices) -> Source:
    """Return the source as Kafka does.

    Any broker setting behind a topic's counts as set; DescribeConfigs considers only the first.
    """
    is_set = any(synonym in node.config.dynamic.values for synonym in TOPIC_CONFIGS[entry.name].synonyms)
    return Source.STATIC_BROKER if entry.source is Source.DEFAULT and is_set else entry.source
