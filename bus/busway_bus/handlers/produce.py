"""Produce (key 0, versions 3-13): append one batch to each partition.

Versions: 7 allows zstd (KIP-110), 8 lists the refused records (KIP-467), 9 is flexible, 10 adds leader hints, 11 has
TRANSACTION_ABORTABLE, 12 adds a partition to its producer's transaction with the first batch (KIP-890), 13 has topic
ids (KIP-516). Version 0 is advertised but refused: older librdkafka disables compression if it is not listed
(KAFKA-18659).
Behaviour: acks 0 gets no response; a refusal closes its connection, as in Kafka. 1 waits for the leader's disk, -1 for
the disks of all in-sync replicas, unless the topic says otherwise; where other brokers do not have the records within
timeout_ms, the response is REQUEST_TIMED_OUT. Every batch is validated, compressed ones too. Records with
non-consecutive offsets are refused, where Kafka would renumber them; so is a batch that inflates to more than 16 times
max.message.bytes, or its default if that is more. Before a transaction's first batch in a partition its coordinator
verifies that the transaction is ongoing there; meanwhile the producer's requests wait. Clients may not write control
batches.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from busway_bus.handlers.common.context import CloseConnection, RequestContext
from busway_bus.handlers.common.leader_hints import HINTED, LeaderHints
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.kernel.limits import VERIFICATION_ASKS_MAX
from busway_bus.kernel.topics import INTERNAL
from busway_bus.log.inspection import RecordsRefused
from busway_bus.log.partition_log import AppendInfo
from busway_bus.log.producer_state import Verification
from busway_bus.log.validate import check_batch
from busway_bus.replication.manager import InspectionBudget
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import ACKS_ALL
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from busway_protocol.records.batch import CODEC_MASK, CRC_START, MAGIC, TRANSACTIONAL, CorruptBatch, read_header

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
ABORTABLE_SINCE = 11
ADDS_SINCE = 12
LEADER_HINTS_SINCE = 10
ZSTD_SINCE = 7
ZSTD = 4
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = CRC_START + 1
"""Position of the low byte of a batch's attributes."""


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | PendingResponse | None:
    """Append all batches, large ones later; respond once the partitions acknowledge."""
    return _ProduceOperation(request, context).answer()


class _Transactional(NamedTuple):
    partition: Partition
    records: memoryview
    response: PartitionProduceResponse


class _ProduceOperation(PendingResponse):
    """The batches of one request, and its response after the last acknowledgement."""

    __slots__ = (
        "_allowance",
        "_appending",
        "_context",
        "_hinted",
        "_request",
        "_timer",
        "_transactional",
        "_unacknowledged",
        "_waiting",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._allowance = InspectionBudget()
        self._transactional: list[_Transactional] = []
        self._appending = 0
        """Tasks that append or refuse batches."""
        self._waiting = 1  # 1 for `answer` itself: no acknowledgement completes it earlier
        self._hinted = False
        """Whether a partition was refused because of its leader."""
        self._unacknowledged: list[PartitionProduceResponse] = []
        """Responses that wait for other brokers, until the timer ends the wait."""
        self._timer: asyncio.TimerHandle | None = None

    def answer(self) -> "ProduceResponse | PendingResponse | None":
        if self._request.transactional_id is None and _holds_transactional(self._request):
            self.response = _without_transactional_id(self._request)
        else:
            self.response = ProduceResponse(responses=[self._topic(topic) for topic in self._request.topic_data])
        if self._transactional:
            self._append_transactional()
        self._waiting -= 1
        if self._waiting:
            self.needs_request = self._appending > 0
            if not self._appending:
                self._release_batches()
            return self
        if self._request.acks:
            if self._hinted:
                self._add_hints()
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
            records = self._records(name, batch)
        except KafkaError as problem:
            self._refuse(response, problem)
            return response
        # Without a transactional id, `answer` has checked the whole request.
        if self._request.transactional_id is not None and _attributes(records) & TRANSACTIONAL:
            self._transactional.append(_Transactional(partition, records, response))
        else:
            self._append_to(partition, records, response)
        return response

    def _append_to(
        self,
        partition: Partition,
        records: memoryview,
        response: PartitionProduceResponse,
        verification: Verification | None = None,
    ) -> None:
        partition.counters.produce_requests += 1
        try:
            written = self._context.node.replicas.append_from_client(
                partition, records, self._request.acks, self._allowance, verification
            )
        except KafkaError as problem:
            partition.counters.failed_produce_requests += 1
            self._refuse(response, problem)
            return
        if isinstance(written, asyncio.Task):
            self._waiting += 1
            self._appending += 1
            written.add_done_callback(partial(self._written, partition, response))
        else:
            self._place(partition, response, written)

    def _written(
        self, partition: Partition, response: PartitionProduceResponse, task: "asyncio.Task[AppendInfo]"
    ) -> None:
        if task.cancelled():
            return  # the node stops
        problem = task.exception()
        if problem is None:
            self._place(partition, response, task.result())
        elif isinstance(problem, KafkaError):
            partition.counters.failed_produce_requests += 1
            self._refuse(response, problem)
        else:
            assert isinstance(problem, Exception)
            self.problem = problem
        self._appending_ended()
        self._count_down()

    def _appending_ended(self) -> None:
        """Count an ended task; after the last release the batches."""
        self._appending -= 1
        if not self._appending:
            self._release_batches()
            if self.needs_request:
                self.release_request()

    def _release_batches(self) -> None:
        self._request.topic_data = []
        self._transactional = []

    def _place(self, partition: Partition, response: PartitionProduceResponse, info: AppendInfo) -> None:
        response.base_offset = info.first_offset
        response.log_append_time_ms = info.log_append_time_ms
        response.log_start_offset = info.log_start_offset
        acks = self._request.acks
        if partition.state.followers and acks == ACKS_ALL:
            self._await_followers(partition, response, info)
        elif acks and self._context.node.replicas.await_acks(
            partition, info, acks, partial(self._acknowledged, response)
        ):
            self._waiting += 1

    def _await_followers(self, partition: Partition, response: PartitionProduceResponse, info: AppendInfo) -> None:
        """Wait for other brokers, at most for the request's timeout."""
        acknowledged = partial(self._acknowledged_by_all, response)
        if not self._context.node.replicas.await_acks(partition, info, ACKS_ALL, acknowledged):
            return
        self._waiting += 1
        self._unacknowledged.append(response)
        if self._timer is None:
            seconds = max(self._request.timeout_ms, 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _acknowledged_by_all(self, response: PartitionProduceResponse, problem: KafkaError | None) -> None:
        for at, waiting in enumerate(self._unacknowledged):
            if waiting is response:
                del self._unacknowledged[at]
                self._acknowledged(response, problem)
                return

    def _expire(self) -> None:
        """Answer REQUEST_TIMED_OUT for records that too few replicas have in time; they may still be committed."""
        self._timer = None
        expired, self._unacknowledged = self._unacknowledged, []
        for response in expired:
            self._acknowledged(response, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _acknowledged(self, response: PartitionProduceResponse, problem: KafkaError | None) -> None:
        if problem is not None:
            self._refuse(response, problem)
        self._count_down()

    def _count_down(self) -> None:
        self._waiting -= 1
        if self._waiting or self.done:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.problem is None and not self._request.acks:
            self.problem = _refused(self.response)
            self.response = None
        if self.problem is not None:
            self.fail(self.problem)
        else:
            if self._hinted:
                self._add_hints()
            self.complete(self.response)

    def _refuse(self, response: PartitionProduceResponse, problem: KafkaError) -> None:
        _refuse(response, problem)
        self._hinted = self._hinted or problem.code in HINTED

    def _add_hints(self) -> None:
        """Name the leaders of refused partitions (KIP-951)."""
        if self._context.api_version < LEADER_HINTS_SINCE:
            return
        hints = LeaderHints(self._context.node.image, self._context.listener)
        for topic in self.response.responses:
            name = topic.name or self._context.node.replicas.name_of(topic.topic_id) or ""
            for partition in topic.partition_responses:
                if partition.error_code in HINTED:
                    leader_id, leader_epoch = hints.leader(name, partition.index)
                    partition.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        self.response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=address.host, port=address.port, rack=rack)
            for node_id, address, rack in hints.nodes.values()
        ]

    # Transactions

    def _append_transactional(self) -> None:
        """Append the transaction's batches, at once where it has begun."""
        try:
            producers = {read_header(records)[9:11] for _, records, _ in self._transactional}
            if len(producers) > 1:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has one producer id and epoch")
        except CorruptBatch as problem:
            self._refuse_transactional(KafkaError(ErrorCode.INVALID_RECORD, str(problem)))
            return
        except KafkaError as problem:
            self._refuse_transactional(problem)
            return
        ((producer_id, epoch),) = producers
        assert self._request.transactional_id is not None, "a batch without one was refused before"
        verifications = self._context.node.replicas.verifications
        unverified = []
        for batch in self._transactional:
            if verifications.waiting(producer_id) or not batch.partition.log.producers.is_open(producer_id, epoch):
                unverified.append(batch)
            else:
                self._append_to(*batch)
        if unverified:
            self._waiting += 1
            self._appending += 1
            work = partial(self._verify, self._request.transactional_id, (producer_id, epoch), unverified)
            verifications.in_turn(producer_id, work).add_done_callback(self._verified)

    def _refuse_transactional(self, problem: KafkaError) -> None:
        for batch in self._transactional:
            self._refuse(batch.response, problem)

    async def _verify(self, transactional_id: str, producer: tuple[int, int], batches: list[_Transactional]) -> None:
        """Append first batches of a transaction after verification by its coordinator.

        The marker of the producer's last transaction may void the verification. It is then repeated, as in Kafka
        (ReplicaManager), unless epochs do not distinguish transactions: then the client must decide.
        """
        add = self._context.api_version >= ADDS_SINCE
        asks = VERIFICATION_ASKS_MAX if add else 1
        while batches:
            asks -= 1
            batches = await self._ask(transactional_id, producer, batches, last=not asks)

    async def _ask(
        self, transactional_id: str, producer: tuple[int, int], batches: list[_Transactional], *, last: bool
    ) -> list[_Transactional]:
        """Verify once, append or refuse; return batches with void verification.

        The `last` time they are appended too: the log refuses them.
        """
        node, add = self._context.node, self._context.api_version >= ADDS_SINCE
        asked: list[tuple[_Transactional, Verification]] = []
        for batch in batches:
            try:
                header = check_batch(batch.records, batch.partition.log.config)
                verification = batch.partition.log.producers.verification(header, node.machine.wall_ms(), from_zero=add)
            except KafkaError as problem:
                self._refuse(batch.response, problem)
                continue
            if verification is None:  # an earlier batch has begun it
                self._append_to(*batch)
            else:
                asked.append((batch, verification))
        if not asked:
            return []
        problems = await node.replicas.verifications.verify(
            transactional_id,
            producer,
            {(batch.partition.topic, batch.partition.index) for batch, _ in asked},
            add=add,
            abortable=self._context.api_version >= ABORTABLE_SINCE,
            host=self._context.client_host,
        )
        left = []
        for batch, verification in asked:
            key = batch.partition.topic, batch.partition.index
            refusal = problems[key]
            if node.replicas.local.get(key) is not batch.partition:
                refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key[0]} was deleted meanwhile")
            if refusal is not None:
                self._refuse(batch.response, refusal)
            elif last or batch.partition.log.producers.holds(producer[0], verification):
                self._append_to(*batch, verification)
            else:
                left.append(batch)
        return left

    def _verified(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return  # the node stops
        problem = task.exception()
        if problem is not None:
            assert isinstance(problem, Exception)
            self.problem = problem
        self._appending_ended()
        self._count_down()

    # The request

    def _records(self, name: str, data: PartitionProduceData) -> memoryview:
        """Return the batch for a partition, or refuse it with KafkaError."""
        acks, records = self._request.acks, data.records
        if acks not in {-1, 0, 1}:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, it must be -1, 0 or 1")
        if not isinstance(records, memoryview) or len(records) == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the request holds no records for this partition")
        if name in INTERNAL:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone")
        if self._context.api_version < ZSTD_SINCE and _attributes(records) & CODEC_MASK == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        return records


def _attributes(records: memoryview) -> int:
    """Return the low byte of a batch's attributes; 0 for other formats."""
    if len(records) > ATTRIBUTES_AT and records[MAGIC_AT] == MAGIC:
        return records[ATTRIBUTES_AT]
    return 0


def _holds_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for batch in topic.partition_data:
            if type(batch.records) is memoryview and _attributes(batch.records) & TRANSACTIONAL:
                return True
    return False


def _without_transactional_id(request: ProduceRequest) -> ProduceResponse:
    """Refuse a request: transactional batches without transactional id, as in Kafka."""
    problem = KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "batches of a transaction need a transactional id"
    )
    answer = ProduceResponse(responses=[])
    for topic in request.topic_data:
        refused = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
        for batch in topic.partition_data:
            response = PartitionProduceResponse(index=batch.index, error_code=ErrorCode.NONE, base_offset=-1)
            _refuse(response, problem)
            refused.partition_responses.append(response)
        answer.responses.append(refused)
    return answer


def _refuse(response: PartitionProduceResponse, problem: KafkaError) -> None:
    response.error_code = problem.code
    response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
    response.error_message = problem.message
    if isinstance(problem, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
            for index, reason in problem.records
        ]


def _refused(response: ProduceResponse) -> CloseConnection | None:
    """Return the close of the connection after a refusal.

    Only that makes a producer with acks=0 refresh its metadata, as in Kafka.
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                code = ErrorCode(partition.error_code)
                return CloseConnection(f"a batch sent with acks=0 was refused: {code.name}: {partition.error_message}")
    return None
