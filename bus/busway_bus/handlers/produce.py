"""Produce (key 0, versions 3-13): append one batch to each partition named.

Versions: 7 allows zstd (KIP-110), 8 tells which records were refused (KIP-467), 9 is flexible, 10 adds leader hints,
13 names topics by id (KIP-516). Version 0 is advertised although it is refused: older librdkafka turns compression off
when it is not listed (KAFKA-18659).
Behaviour: acks 0 gets no answer, 1 and -1 are the same on one node; acknowledged means on disk unless the topic says otherwise.
*Not supported*: transactional batches, which are refused; looking into compressed records, which only compacted topics and
topics with a compression.type of their own do: what is under the codec is the producer's word.
"""

import asyncio
from collections.abc import Awaitable

from busway_bus.handlers.context import RequestContext
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from busway_protocol.records.batch import CODEC_MASK, CRC_START, TRANSACTIONAL

API = ApiKey.PRODUCE
VERSIONS = (3, 13)
ADVERTISED_MIN = 0
PIPELINED = True
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
ZSTD = 4

Waits = list[tuple[PartitionProduceResponse, "asyncio.Future[None]"]]


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append everything at once; the answer waits for the disk."""
    waits: Waits = []
    responses = []
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            name = context.node.replicas.name_of(topic.topic_id)
        partitions = [_append(name, data, request, context, waits) for data in topic.partition_data]
        responses.append(_topic(topic, partitions))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        return None
    return _acknowledge(response, waits) if waits else response


def _topic(topic: TopicProduceData, partitions: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)


def _append(
    name: str | None, data: PartitionProduceData, request: ProduceRequest, context: RequestContext, waits: Waits
) -> PartitionProduceResponse:
    replicas = context.node.replicas
    try:
        if request.acks not in {-1, 0, 1}:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, it must be -1, 0 or 1")
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = replicas.find(name, data.index)
        records = data.records
        if not isinstance(records, memoryview) or len(records) == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the request holds no records for this partition")
        if name.startswith("__") and name in {"__consumer_offsets", "__transaction_state"}:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone")
        if len(records) > CRC_START + 1:
            attributes = records[CRC_START + 1]
            if attributes & TRANSACTIONAL:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "transactions are not served by this version")
            if attributes & CODEC_MASK == ZSTD and context.api_version < ZSTD_SINCE:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        info, done = replicas.append(partition, records)
    except KafkaError as problem:
        return PartitionProduceResponse(
            index=data.index, error_code=problem.code, base_offset=-1, error_message=problem.message
        )
    response = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    if done is not None:
        if request.acks == 0:
            done.add_done_callback(lambda future: future.exception())
        else:
            waits.append((response, done))
    return response


async def _acknowledge(response: ProduceResponse, waits: Waits) -> ProduceResponse:
    for partition, done in waits:
        try:
            await done
        except KafkaError as problem:
            partition.error_code = problem.code
            partition.base_offset = -1
            partition.error_message = problem.message
    return response
