"""Produce (key 0, versions 3-13): append one batch to each partition named.

Versions: 7 allows zstd (KIP-110), 8 tells which records were refused (KIP-467), 9 is flexible, 10 adds leader hints,
13 names topics by id (KIP-516). Version 0 is advertised although it is refused: older librdkafka turns compression off
when it is not listed (KAFKA-18659).
Behaviour: acks 0 gets no answer, where it is refused its connection ends, as in Kafka; 1 and -1 are the same on one node; acknowledged means on disk unless the topic says otherwise.
Every batch is looked through, compressed ones too. Where Kafka would number records anew whose offsets do not follow each other,
they are refused; so is a batch that inflates to more than 16 times max.message.bytes, or its default where that is more.
*Not supported*: transactional batches, which are refused.
"""

import asyncio
from functools import partial

from busway_bus.handlers.context import CloseConnection, RequestContext
from busway_bus.handlers.pending import Pending
from busway_bus.kernel.topics import INTERNAL
from busway_bus.log.inspection import RecordsRefused
from busway_bus.log.partition_log import AppendInfo
from busway_bus.replication.manager import Allowance
from busway_bus.replication.partition import Partition
from busway_bus.security.operations import Access, Operation, Resource
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
NEEDS = (
    Access(Operation.WRITE, Resource.TOPIC),
    Access(Operation.WRITE, Resource.TRANSACTIONAL_ID),
    Access(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),
)
ADVERTISED_MIN = 0
PIPELINED = True
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
ZSTD = 4


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending | None:
    """Append everything at once, but for large batches; the answer waits until its partitions acknowledge."""
    return _Writing(request, context).answer()


class _Writing(Pending):
    """One request's batches on their way into the logs, and the answer to it: complete when the last of them is acknowledged."""

    __slots__ = ("_allowance", "_context", "_request", "_waiting")

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._allowance = Allowance()
        self._waiting = 1  # for the end of this request itself, so that no acknowledgement completes it before

    def answer(self) -> "ProduceResponse | Pending | None":
        """Append everything."""
        self.response = ProduceResponse(responses=[self._topic(topic) for topic in self._request.topic_data])
        self._waiting -= 1
        if self._waiting:
            return self
        if self._request.acks:
            return self.response  # type: ignore[no-any-return]
        refused = _refused(self.response)
        if refused is not None:
            raise refused
        return None

    def _topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        name: str | None = topic.name
        if self._context.api_version >= TOPIC_IDS_SINCE:
            name = self._context.node.replicas.name_of(topic.topic_id)
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[self._append(name, batch) for batch in topic.partition_data],
        )

    def _append(self, name: str | None, batch: PartitionProduceData) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=batch.index, error_code=ErrorCode.NONE, base_offset=-1)
        replicas = self._context.node.replicas
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = replicas.find(name, batch.index)
            written = replicas.take_in(partition, self._records(name, batch), self._request.acks, self._allowance)
        except KafkaError as problem:
            _refuse(response, problem)
            return response
        if isinstance(written, asyncio.Task):
            self._waiting += 1
            written.add_done_callback(partial(self._written, partition, response))
        else:
            self._place(partition, response, written)
        return response

    def _written(
        self, partition: Partition, response: PartitionProduceResponse, task: "asyncio.Task[AppendInfo]"
    ) -> None:
        """A batch that was looked through for long is appended, or not."""
        if task.cancelled():
            return  # the node stops
        problem = task.exception()
        if problem is None:
            self._place(partition, response, task.result())
        elif isinstance(problem, KafkaError):
            _refuse(response, problem)
        else:
            assert isinstance(problem, Exception)
            self.problem = problem
        self._one_less()

    def _place(self, partition: Partition, response: PartitionProduceResponse, info: AppendInfo) -> None:
        response.base_offset = info.first_offset
        response.log_append_time_ms = info.log_append_time_ms
        response.log_start_offset = info.log_start_offset
        acks = self._request.acks
        if acks and self._context.node.replicas.await_acks(
            partition, info, acks, partial(self._acknowledged, response)
        ):
            self._waiting += 1

    def _acknowledged(self, response: PartitionProduceResponse, problem: KafkaError | None) -> None:
        if problem is not None:
            _refuse(response, problem)
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting or self.done:
            return
        if self.problem is None and not self._request.acks:
            self.problem = _refused(self.response)
            self.response = None
        if self.problem is not None:
            self.fail(self.problem)
        else:
            self.complete(self.response)

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


def _refuse(response: PartitionProduceResponse, problem: KafkaError) -> None:
    response.error_code = problem.code
    response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
    response.error_message = problem.message
    if isinstance(problem, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
            for number, reason in problem.records
        ]


def _refused(response: ProduceResponse) -> CloseConnection | None:
    """A producer that wants no answers learns by its closed connection alone that it has to look for the leader anew, as in Kafka."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                code = ErrorCode(partition.error_code)
                return CloseConnection(f"a batch sent with acks=0 was refused: {code.name}: {partition.error_message}")
    return None
