"""Metadata (key 3, versions 0-13): brokers, topics, and who leads their partitions.

Versions: 0 asks for all topics with an empty list, 1+ with null; 4 says whether to create what is missing, 9 is flexible, 10 has
topic ids (KIP-516), 12 can ask by id, 13 has an error for the whole answer.
Behaviour: unknown topics are created when both the client and auto.create.topics.enable allow it.
*Not supported*: authorized operations, which need access control.
"""

from collections.abc import Awaitable

from busway_bus.handlers.context import RequestContext
from busway_bus.handlers.topic_creation import create_topic
from busway_bus.metadata.image import TopicImage
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.METADATA
VERSIONS = (0, 13)
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe what is asked for; creating topics takes a while, the rest does not."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _response([_topic(topic) for topic in context.node.image.topics.values()], context)
    known = context.node.image.topics
    creates = request.allow_auto_topic_creation and context.node.config.get("auto.create.topics.enable")
    if creates and any(topic.name and topic.name not in known for topic in request.topics):
        return _create(request.topics, context)
    return _response([_asked(topic, context) for topic in request.topics], context)


async def _create(topics: list[MetadataRequestTopic], context: RequestContext) -> MetadataResponse:
    answers = []
    for topic in topics:
        if topic.name and topic.name not in context.node.image.topics:
            try:
                await create_topic(context.node, topic.name)
            except KafkaError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    answers.append(_failed(problem.code, topic))
                    continue
        answers.append(_asked(topic, context))
    return _response(answers, context)


def _asked(topic: MetadataRequestTopic, context: RequestContext) -> MetadataResponseTopic:
    image = context.node.image
    name = topic.name
    if name is None:
        name = image.names.get(topic.topic_id)
        if name is None:
            return _failed(ErrorCode.UNKNOWN_TOPIC_ID, topic)
    found = image.topics.get(name)
    return _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic) if found is None else _topic(found)


def _failed(code: ErrorCode, topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id, partitions=[])


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id or ZERO_UUID,
        is_internal=topic.name in INTERNAL,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=number,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[],
            )
            for number, partition in enumerate(topic.partitions)
        ],
    )


def _response(topics: list[MetadataResponseTopic], context: RequestContext) -> MetadataResponse:
    node = context.node
    if context.api_version < 12:
        for topic in topics:
            topic.name = topic.name or ""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.node_id,
                host=context.advertised.host,
                port=context.advertised.port,
                rack=node.config.get("broker.rack"),
            )
        ],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
