"""DescribeProducers (key 61, version 0): a partition's recent producers and open transactions (KIP-664).

Behaviour: the producers that a partition remembers (producer.id.expiration.ms), with the first offset of an open
transaction, for `kafka-transactions.sh find-hanging`. A repeated topic or partition is described once (Kafka: each
mention); a partition that would make the response too large gets NOT_LEADER_OR_FOLLOWER, which Kafka's client retries.
"""

from collections.abc import Awaitable, Generator

from busway_bus.handlers.common.context import Large, RequestContext
from busway_bus.handlers.common.response_room import AnswerRoom
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

API = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)
NEEDS = (Access(Operation.READ, Resource.TOPIC),)
STEP = 500
ROW_BYTES = 256


def handle(request: DescribeProducersRequest, context: RequestContext) -> Awaitable[Large]:
    """Describe each partition. It may have very many producers."""
    return context.in_slices(_response(request, context))


def _response(
    request: DescribeProducersRequest, context: RequestContext
) -> Generator[None, None, DescribeProducersResponse]:
    response = DescribeProducersResponse(topics=[])
    room = AnswerRoom()
    named: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, partitions in named.items():
        answer = TopicResponse(name=name, partitions=[])
        response.topics.append(answer)
        for partition_index in partitions:
            partition = PartitionResponse(
                partition_index=partition_index, error_code=ErrorCode.NONE, active_producers=[]
            )
            answer.partitions.append(partition)
            try:
                local = context.node.replicas.find(name, partition_index)
                local.check_leader()
                producers = local.log.producers
                if not room.take(ROW_BYTES * (1 + len(producers))):
                    raise KafkaError(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER, "the answer is full; ask for this partition again"
                    )
            except KafkaError as problem:
                partition.error_code, partition.error_message = problem.code, problem.message
                yield
                continue
            for count, (producer_id, entry) in enumerate(tuple(producers)):
                partition.active_producers.append(
                    ProducerState(
                        producer_id=producer_id,
                        producer_epoch=entry.epoch,
                        last_sequence=entry.last_sequence,
                        last_timestamp=entry.last_timestamp,
                        coordinator_epoch=entry.coordinator_epoch,
                        current_txn_start_offset=entry.transaction_start,
                    )
                )
                if count % STEP == 0:
                    yield
            yield
    return response
