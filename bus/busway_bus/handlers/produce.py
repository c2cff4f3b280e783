"""Produce (key 0, versions 3-13): append one batch to each partition named.

Versions: 7 allows zstd (KIP-110), 8 tells which records were refused (KIP-467), 9 is flexible, 10 adds leader hints,
13 names topics by id (KIP-516). Version 0 is advertised although it is refused: older librdkafka turns compression off
when it is not listed (KAFKA-18659).
Behaviour: acks 0 gets no answer, where it is refused its connection ends, as in Kafka; 1 and -1 are the same on one node; acknowledged means on disk unless the topic says otherwise.
Every batch is looked through, compressed ones too. Where Kafka would number records anew whose offsets do not follow each other,
they are refused; so is a batch that inflates to more than 16 times max.message.bytes.
*Not supported*: transactional batches, which are refused.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from busway_bus.handlers.context import CloseConnection, RequestContext
from busway_bus.kernel.topics import INTERNAL
from busway_bus.log.inspection import RecordsRefused
from busway_bus.log.partition_log import AppendInfo
from busway_bus.replication.manager import Allowance
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
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

Waits = list[tuple[PartitionProduceResponse, "asyncio.Future[Any]"]]
"""Answers that are not complete, each with what it waits for: the disk, or that the batch is looked through and written."""


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append everything at once, but for large batches; the answer waits for the disk."""
    writing = _Writing(request, context)
    response = ProduceResponse(responses=[writing.topic(topic) for topic in request.topic_data])
    if request.acks == 0:
        _close_where_refused(response)
        return _unanswered(response, writing.waits) if writing.waits else None
    return _acknowledge(response, writing.waits) if writing.waits else response


class _Writing:
    """One request's batches on their way into the logs."""

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._allowance = Allowance()
        self.waits: Waits = []

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        """Append to each partition of a topic."""
        name: str | None = topic.name
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = self._context.node.replicas.name_of(topic.topic_id)
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[self._append(name, data) for data in topic.partition_data],
        )

    def _append(self, name: str | None, data: PartitionProduceData) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=data.index, error_code=ErrorCode.NONE, base_offset=-1)
        replicas = self._context.node.replicas
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = replicas.find(name, data.index)
            written = replicas.take_in(partition, self._records(name, data), self._allowance)
        except KafkaError as problem:
            _refuse(response, problem)
            return response
        done: asyncio.Future[Any] | None = written if isinstance(written, asyncio.Task) else _place(response, *written)
        if done is None:
            return response
        if self._request.acks == 0 and done is not written:  # nobody waits for the disk
            done.add_done_callback(lambda future: future.cancelled() or future.exception())
        else:
            self.waits.append((response, done))
        return response

    def _records(self, name: str, data: PartitionProduceData) -> memoryview:
        """The batch for a partition.

        Raises:
            KafkaError: it may not be written there.
        """
        acks, records = self._request.acks, data.records
        if acks not in {-1, 0, 1}:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, it must be -1, 0 or 1")
        if not isinstance(records, memoryview) or len(records) == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the request holds no records for this partition")
        if name in INTERNAL:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone")
        if len(records) > CRC_START + 1:
            attributes = records[CRC_START + 1]
            if attributes & TRANSACTIONAL:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "transactions are not served by this version")
            if attributes & CODEC_MASK == ZSTD and self._context.api_version < ZSTD_SINCE:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        return records


def _place(
    response: PartitionProduceResponse, info: AppendInfo, done: "asyncio.Future[None] | None"
) -> "asyncio.Future[None] | None":
    response.base_offset = info.first_offset
    response.log_append_time_ms = info.log_append_time_ms
    response.log_start_offset = info.log_start_offset
    return done


def _refuse(response: PartitionProduceResponse, problem: KafkaError) -> None:
    response.error_code = problem.code
    response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
    response.error_message = problem.message
    if isinstance(problem, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
            for number, reason in problem.records
        ]


async def _unanswered(response: ProduceResponse, waits: Waits) -> None:
    """Until all that acks=0 sent is written or refused."""
    for partition, task in waits:
        try:
            _, flushed = await asyncio.shield(task)
            if flushed is not None:
                flushed.add_done_callback(lambda future: future.cancelled() or future.exception())
        except KafkaError as problem:
            _refuse(partition, problem)
    _close_where_refused(response)


def _close_where_refused(response: ProduceResponse) -> None:
    """A producer that wants no answers learns by its closed connection alone that it has to look for the leader anew, as in Kafka.

    Raises:
        CloseConnection: a batch was refused.
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                code = ErrorCode(partition.error_code)
                raise CloseConnection(f"a batch sent with acks=0 was refused: {code.name}: {partition.error_message}")


async def _acknowledge(response: ProduceResponse, waits: Waits) -> ProduceResponse:
    for partition, wait in waits:
        try:
            if isinstance(wait, asyncio.Task):
                flushed = _place(partition, *await asyncio.shield(wait))
                if flushed is not None:
                    await flushed
            else:
                await wait
        except KafkaError as problem:
            _refuse(partition, problem)
    return response
