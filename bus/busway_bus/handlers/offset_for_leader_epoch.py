"""OffsetForLeaderEpoch (key 23, versions 2-4): where a leader epoch ended (KIP-320).

Versions: 3 has the replica id, 4 is flexible.
Behaviour: the largest epoch up to the requested one, and its end; with it consumers detect a truncated log. The last
epoch ends at the high watermark for a consumer, at the end of the log for a follower. Only the leader answers.
"""

from busway_bus.handlers.common.context import RequestContext
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (2, 4)
NEEDS = (Access(Operation.DESCRIBE, Resource.TOPIC), Access(Operation.CLUSTER_ACTION, Resource.CLUSTER))


def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end_offset(topic.topic, query, context, of_follower=request.replica_id >= 0)
                    for query in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _end_offset(
    topic: str, query: OffsetForLeaderPartition, context: RequestContext, *, of_follower: bool
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=query.partition, error_code=ErrorCode.NONE)
    try:
        partition = context.node.replicas.find(topic, query.partition)
        partition.check_epoch(query.current_leader_epoch)
        partition.check_leader()
        end = partition.log.end_offset if of_follower else partition.high_watermark
        answer.leader_epoch, answer.end_offset = partition.log.epochs.end_offset(query.leader_epoch, end)
    except KafkaError as problem:
        answer.error_code = problem.code
    return answer
