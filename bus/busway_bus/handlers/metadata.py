"""Metadata (key 3, versions 0-13): brokers, topics, and their partitions' leaders.

Versions: 0 requests all topics with an empty list, 1+ with null; 4 has the permission to create topics, 9 is flexible,
10 has topic ids (KIP-516), 12 allows requests by id, 13 has an error for the whole response.
Behaviour: an unknown topic is UNKNOWN_TOPIC_OR_PARTITION; if the client and auto.create.topics.enable allow it, it is
created in the background, and a retry returns it. A partition that is offline after damage has no leader:
LEADER_NOT_AVAILABLE. Brokers have their addresses for the client's listener.
"""

import functools
from collections.abc import Awaitable, Generator
from typing import Final
from uuid import UUID

from busway_bus.controller.topics import check_name
from busway_bus.handlers.common.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from busway_bus.handlers.common.context import Encoded, Large, RequestContext, finished
from busway_bus.handlers.common.metadata_responses import Asked
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.kernel.topics import INTERNAL, OWN
from busway_bus.metadata.image import NO_LEADER, ClusterImage, TopicImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.METADATA
VERSIONS = (0, 13)
NEEDS = (
    Access(Operation.DESCRIBE, Resource.TOPIC),
    Access(Operation.CREATE, Resource.TOPIC),
    Access(Operation.CREATE, Resource.CLUSTER),
)
IDS_ALONE_SINCE = 12
DESCRIBED_AT_ONCE: Final = 500
KEPT_FROM: Final = 50
"""Topics and partitions from which a response for all is cached."""

TopicKey = tuple[str | None, UUID]


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Encoded | Awaitable[Large]:
    """Describe the requested topics, and create missing ones."""
    image = context.node.image
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _all(image, request, context)
    if context.api_version < IDS_ALONE_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics
    ):
        return _refused(request)
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics)
    keys = dict.fromkeys((None, topic.topic_id) if by_id else (topic.name, ZERO_UUID) for topic in request.topics)
    topics = [image.topics.get((image.names.get(key[1]) if by_id else key[0]) or "") or key for key in keys]
    steps = _response(topics, image, request, context)
    return context.in_slices(steps) if _count(topics) > DESCRIBED_AT_ONCE else finished(steps)


def _all(
    image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Encoded | Awaitable[Large]:
    answers = context.node.metadata_answers
    asked = Asked(
        version=context.api_version,
        listener=context.listener,
        controller_id=context.node.controller.leader_id,
        topic_operations=request.include_topic_authorized_operations,
        cluster_operations=request.include_cluster_authorized_operations,
    )
    if (body := answers.find(image, asked)) is not None:
        return Encoded(body)
    topics: list[TopicImage | TopicKey] = [*image.topics.values()]
    steps = _response(topics, image, request, context)
    if _count(topics) < KEPT_FROM:
        return finished(steps)
    return context.in_slices(steps, functools.partial(answers.keep, image, asked))


def _count(topics: list[TopicImage | TopicKey]) -> int:
    return len(topics) + sum(len(topic.partitions) for topic in topics if isinstance(topic, TopicImage))


def _missing(name: str | None, topic_id: UUID, creates: bool, context: RequestContext) -> MetadataResponseTopic:
    if name is None:
        return _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    try:
        check_name(name)
    except KafkaError as problem:
        return _failed(problem.code, name, ZERO_UUID)
    answer = _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID)
    if creates:
        answer.is_internal = name in INTERNAL
        if name not in OWN:  # created by their coordinators, with other settings
            create = functools.partial(create_topic, context.node, context=context.for_controller)
            context.node.creations.start(name, create)
    return answer


def _failed(code: ErrorCode, name: str | None, topic_id: UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Refuse topic ids before version 12."""
    rows = [_failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in request.topics or ()]
    return MetadataResponse(brokers=[], topics=rows)


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id or ZERO_UUID,
        is_internal=topic.name in INTERNAL,
        partitions=[],
    )


def _partition(
    topic: TopicImage, partition_index: int, image: ClusterImage, listener: str
) -> MetadataResponsePartition:
    partition = topic.partitions[partition_index]
    led = image.address(partition.leader, listener) is not None
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition_index,
        leader_id=partition.leader if led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=image.lacks(partition, listener),
    )


def _response(
    topics: list[TopicImage | TopicKey], image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> Generator[None, None, MetadataResponse]:
    node = context.node
    creates = bool(request.allow_auto_topic_creation and node.config.get("auto.create.topics.enable"))
    answers = []
    for topic in topics:
        if isinstance(topic, TopicImage):
            answer = _topic(topic)
            for partition_index in range(len(topic.partitions)):
                answer.partitions.append(_partition(topic, partition_index, image, context.listener))
                yield
        else:
            answer = _missing(*topic, creates, context)
        if context.api_version < IDS_ALONE_SINCE:
            answer.name = answer.name or ""
        if request.include_topic_authorized_operations and answer.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        answers.append(answer)
        yield
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=address.host, port=address.port, rack=broker.rack)
            for broker, address in image.reachable_brokers(context.listener)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.controller.leader_id,
        topics=answers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
