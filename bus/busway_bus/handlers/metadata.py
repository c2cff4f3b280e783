"""Metadata (key 3, versions 0-13): brokers, topics, and who leads their partitions.

Versions: 0 asks for all topics with an empty list, 1+ with null; 4 says whether to create what is missing, 9 is flexible, 10 has
topic ids (KIP-516), 12 can ask by id, 13 has an error for the whole answer.
Behaviour: an unknown topic is UNKNOWN_TOPIC_OR_PARTITION; when both the client and auto.create.topics.enable allow it, it is made in the
background, and the client that asks again has it. A partition that is offline after damage has no leader: LEADER_NOT_AVAILABLE. Without
access control everybody may do everything, and authorized operations say so.
*Not supported*: nothing is left out.
"""

import functools
from typing import Final
from uuid import UUID

from busway_bus.controller.topics import check_name
from busway_bus.handlers.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from busway_bus.handlers.context import NodeServices, RequestContext
from busway_bus.handlers.topic_creation import create_topic
from busway_bus.metadata.image import TopicImage
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
IDS_ALONE_SINCE = 12
NO_LEADER = -1
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL: Final = frozenset({"__consumer_offsets", TRANSACTIONS_TOPIC})


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe what is asked for, and have made what is not there."""
    topics = context.node.image.topics
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _response([_topic(topic, context.node) for topic in topics.values()], request, context)
    if context.api_version < IDS_ALONE_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics
    ):
        return _refused(request)
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics)
    asked = dict.fromkeys((None, topic.topic_id) if by_id else (topic.name, ZERO_UUID) for topic in request.topics)
    creates = request.allow_auto_topic_creation and context.node.config.get("auto.create.topics.enable")
    return _response([_asked(*one, bool(creates), context.node) for one in asked], request, context)


def _asked(name: str | None, topic_id: UUID, creates: bool, node: NodeServices) -> MetadataResponseTopic:
    if name is None:
        name = node.image.names.get(topic_id)
        if name is None:
            return _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    found = node.image.topics.get(name)
    if found is not None:
        return _topic(found, node)
    try:
        check_name(name)
    except KafkaError as problem:
        return _failed(problem.code, name, ZERO_UUID)
    answer = _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID)
    if creates:
        answer.is_internal = name in INTERNAL
        if name != TRANSACTIONS_TOPIC:  # it comes with the transactions, and with settings of its own
            node.creations.start(name, functools.partial(create_topic, node))
    return answer


def _failed(code: ErrorCode, name: str | None, topic_id: UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Before version 12 ids may be in the request and not be used."""
    rows = [_failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in request.topics or ()]
    return MetadataResponse(brokers=[], topics=rows)


def _topic(topic: TopicImage, node: NodeServices) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id or ZERO_UUID,
        is_internal=topic.name in INTERNAL,
        partitions=[_partition(topic, number, node) for number in range(len(topic.partitions))],
    )


def _partition(topic: TopicImage, number: int, node: NodeServices) -> MetadataResponsePartition:
    partition = topic.partitions[number]
    offline = node.replicas.local.offline(topic.name, number)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        partition_index=number,
        leader_id=NO_LEADER if offline else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(partition.replicas) if offline else [],
    )


def _response(
    topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    node = context.node
    for topic in topics:
        if context.api_version < IDS_ALONE_SINCE:
            topic.name = topic.name or ""
        if request.include_topic_authorized_operations and topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    answer = MetadataResponse(
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
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer
