"""DescribeQuorum (key 55, versions 0-2): the voters of the metadata log (KIP-595).

Versions: 1 has fetch times (KIP-836), 2 texts, directories and the controllers' addresses (KIP-853).
Behaviour: the controller leads as the only voter. Its address is that of controller.quorum.voters, as in Kafka, or else
those of its listeners. A request must have the metadata log's partition alone; otherwise every part is refused.
"""

from busway_bus.handlers.common.context import NodeServices, RequestContext
from busway_bus.metadata.records import TOPIC
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from busway_protocol.types import ZERO_UUID

API = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER),)
TEXTS_SINCE = 2


def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    partitions = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    hosted = partitions == [(TOPIC, 0)]
    answers = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(context.node) if hosted else not_hosted(partition.partition_index, context.api_version)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = [_node(context.node)] if hosted and context.api_version >= TEXTS_SINCE else []
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=answers, nodes=nodes)


def _node(node: NodeServices) -> Node:
    voter, advertised = node.controller.leader_id, node.controller_advertised
    listeners = [Listener(name=name, host=end.host, port=end.port) for name, end in advertised.items()]
    if voter in node.config.voters and listeners:
        host, port = node.config.voters[voter]
        listeners = [Listener(name=listeners[0].name, host=host, port=port)]
    return Node(node_id=voter, listeners=listeners)


def _quorum(node: NodeServices) -> PartitionData:
    log, now = node.metadata.log, node.machine.wall_ms()
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=node.controller.leader_id,
        leader_epoch=log.epochs.latest,
        high_watermark=log.flushed_offset,
        current_voters=[
            ReplicaState(
                replica_id=node.controller.leader_id,
                replica_directory_id=ZERO_UUID,  # as in Kafka for a static quorum
                log_end_offset=log.end_offset,
                last_fetch_timestamp=now,
                last_caught_up_timestamp=now,
            )
        ],
        observers=[],
    )


def not_hosted(partition_index: int, version: int) -> PartitionData:
    text = "This server does not host this topic-partition." if version >= TEXTS_SINCE else ""
    return PartitionData(
        partition_index=partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
