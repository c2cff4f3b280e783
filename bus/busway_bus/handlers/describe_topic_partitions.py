"""DescribeTopicPartitions (key 75, version 0): the partitions of topics, page by page (KIP-966).

Behaviour: topics in the order of their names, at most response_partition_limit partitions; the cursor is the start of
the next page. A partition that is offline after damage has no leader.
"""

from busway_bus.controller.topics import check_name
from busway_bus.handlers.common.authorized import TOPIC_OPERATIONS
from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.topics import INTERNAL
from busway_bus.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.DESCRIBE, Resource.TOPIC),)


def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> DescribeTopicPartitionsResponse:
    image = context.node.image
    cursor = request.cursor
    begin, first = ("", 0) if cursor is None else (cursor.topic_name, max(cursor.partition_index, 0))
    requested = sorted({topic.name for topic in request.topics if topic.name >= begin})
    names = iter(requested) if request.topics else image.topics.since(begin)
    left = min(max(request.response_partition_limit, 1), context.node.config.get("max.request.partition.size.limit"))
    topics = []
    following = None
    for name in names:
        if left == 0:
            following = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        first = first if name == begin else 0
        if topic is None:
            topics.append(_unknown(name))
            continue
        partitions = range(first, min(len(topic.partitions), first + left))
        topics.append(_topic(topic, partitions, image, context.listener))
        left -= len(partitions)
        if partitions.stop < len(topic.partitions):
            following = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=partitions.stop)
            break
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as problem:
        code = problem.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    topic: TopicImage, partitions: range, image: ClusterImage, listener: str
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=[
            _partition(topic.partitions[partition_index], partition_index, image, listener)
            for partition_index in partitions
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    partition: PartitionImage, partition_index: int, image: ClusterImage, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    led = image.address(partition.leader, listener) is not None
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition_index,
        leader_id=partition.leader if led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=image.lacks(partition, listener),
    )
