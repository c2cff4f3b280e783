"""DeleteRecords (key 21, versions 0-2): advance the start of partitions (KIP-107).

Behaviour: offset -1 means the high watermark; the new start survives a restart. Internal topics are refused. The
response waits until the followers have deleted the records, too; after timeout_ms it is REQUEST_TIMED_OUT.
"""

import asyncio

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.topics import INTERNAL
from busway_bus.replication.partition import Partition
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)
NEEDS = (Access(Operation.DELETE, Resource.TOPIC),)
HIGH_WATERMARK = -1
Waits = list[tuple[Partition, DeleteRecordsPartitionResult]]
"""Partitions whose followers have to delete the records, too."""


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Advance the start offsets, checkpoint them and wait for the followers before the response."""
    waits: Waits = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(topic.name, partition, context, waits) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    try:
        await context.node.replicas.logs.checkpoint()
    except OSError:
        for partition in (partition for topic in topics for partition in topic.partitions):
            partition.error_code = partition.error_code or ErrorCode.KAFKA_STORAGE_ERROR
    if waits:
        await asyncio.gather(*(_followers(request, context, *wait) for wait in waits))
    return DeleteRecordsResponse(topics=topics)


async def _followers(
    request: DeleteRecordsRequest, context: RequestContext, partition: Partition, result: DeleteRecordsPartitionResult
) -> None:
    """Wait for the followers of one partition."""
    within_s = max(request.timeout_ms, 0) / 1000
    try:
        if not await context.node.replicas.started_at(partition, result.low_watermark, within_s):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    except KafkaError as problem:
        result.low_watermark, result.error_code = -1, problem.code


def _delete(
    topic: str, deletion: DeleteRecordsPartition, context: RequestContext, waits: Waits
) -> DeleteRecordsPartitionResult:
    try:
        partition = context.node.replicas.find(topic, deletion.partition_index)
        partition.check_leader()
        if topic in INTERNAL:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of internal topic {topic} are not deleted")
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {topic} has not cleanup.policy=delete")
        offset = partition.high_watermark if deletion.offset == HIGH_WATERMARK else deletion.offset
        if offset < 0 or offset > partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.log.advance_start(offset, context.node.machine.wall_ms())
    except KafkaError as problem:
        return DeleteRecordsPartitionResult(
            partition_index=deletion.partition_index, low_watermark=-1, error_code=problem.code
        )
    result = DeleteRecordsPartitionResult(
        partition_index=deletion.partition_index, low_watermark=partition.log.start_offset, error_code=ErrorCode.NONE
    )
    if partition.state.followers:
        waits.append((partition, result))
    return result
