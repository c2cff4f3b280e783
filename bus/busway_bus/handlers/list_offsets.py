"""ListOffsets (key 2, versions 1-11): offsets by timestamp, and the ends of a log.

Versions: 2 has the isolation level, 4 the leader epoch, 6 is flexible, 7 asks for the largest timestamp (-3), 8 for the earliest
local offset (-4), 9 for the last tiered one (-5), 11 for the earliest pending upload (-6).
Behaviour: -1 is the high watermark, -2 the log start; a timestamp gives the first record at or after it (KIP-79).
*Not supported*: tiers; -4 is the log start, -5 and -6 answer -1.
"""

from busway_bus.handlers.context import RequestContext
from busway_bus.replication.partition import Partition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)
LEADER_EPOCH_SINCE = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look each partition up."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_one(topic.name, partition, context) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _one(topic: str, wanted: ListOffsetsPartition, context: RequestContext) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
    try:
        partition = context.node.replicas.find(topic, wanted.partition_index)
        partition.check_epoch(wanted.current_leader_epoch)
        try:
            answer.offset, answer.timestamp, leader_epoch = _look_up(partition, wanted.timestamp)
        except (ProtocolError, OSError) as problem:
            raise KafkaError(partition.damaged(problem)) from problem
        if context.api_version >= LEADER_EPOCH_SINCE:
            answer.leader_epoch = leader_epoch
    except KafkaError as problem:
        answer.error_code = problem.code
    return answer


def _look_up(partition: Partition, timestamp: int) -> tuple[int, int, int]:
    log = partition.log
    if timestamp == LATEST:
        return partition.high_watermark, -1, partition.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return log.start_offset, -1, partition.leader_epoch
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        return log.max_timestamp() or (-1, -1, -1)
    if timestamp < 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    return log.offset_for_time(timestamp, up_to=partition.high_watermark) or (-1, -1, -1)
