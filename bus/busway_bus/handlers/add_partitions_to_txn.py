"""AddPartitionsToTxn (key 24, versions 0-5): add partitions to a transaction (KIP-98).

Versions: 2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 3 is flexible; 4 is for brokers, with
several transactions or verification only (KIP-890); 5 may return TRANSACTION_ABORTABLE.
Behaviour: adds all partitions of a transaction or none. While the id's last transaction is ending, it waits for at most
add.partitions.to.txn.retry.backoff.max.ms, then returns CONCURRENT_TRANSACTIONS. A transaction has at most 10,000
partitions, and a host's share of all of them is bounded (POLICY_VIOLATION); what a broker adds is charged to the host of
the transactional id.
"""

from collections.abc import Iterable, Mapping

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.topics import INTERNAL, OFFSETS_TOPIC
from busway_bus.security.operations import Access, Operation, Resource
from busway_bus.transactions.transaction import TopicPartition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)
NEEDS = (
    Access(Operation.WRITE, Resource.TRANSACTIONAL_ID),
    Access(Operation.WRITE, Resource.TOPIC),
    Access(Operation.CLUSTER_ACTION, Resource.CLUSTER),
)
BATCHED_SINCE = 4
FENCED_SINCE = 2


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    if context.api_version >= BATCHED_SINCE:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _results(transaction, context, client_version=2),
            )
            for transaction in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _results(transaction, context, client_version=0)
    )


async def _results(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext, *, client_version: int
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [(topic.name, partition_index) for topic in transaction.topics for partition_index in topic.partitions]
    image = context.node.image
    # Kafka allows brokers any internal topic, but adds only that of offsets; markers in others have no use.
    refused = INTERNAL - {OFFSETS_TOPIC} if context.api_version >= BATCHED_SINCE else INTERNAL
    codes: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        if partition[0] in refused:
            codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(*partition) is None:
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if codes:
        return _by_topic(transaction.topics, {**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **codes})
    if transaction.verify_only:
        identity = (transaction.producer_id, transaction.producer_epoch)
        verified = await context.node.transactions.verify_here(
            transaction.transactional_id, identity, partitions, add=False, host=None
        )
        return _by_topic(transaction.topics, verified)
    code = await _added(transaction, partitions, context, client_version)
    return _by_topic(transaction.topics, dict.fromkeys(partitions, code))


async def _added(
    transaction: AddPartitionsToTxnTransaction,
    partitions: Iterable[TopicPartition],
    context: RequestContext,
    client_version: int,
) -> ErrorCode:
    if not transaction.transactional_id:
        return ErrorCode.INVALID_REQUEST
    identity = (transaction.producer_id, transaction.producer_epoch)
    try:
        await context.node.transactions.add(
            transaction.transactional_id,
            identity,
            frozenset(partitions),
            client_version=client_version,
            host=None if context.api_version >= BATCHED_SINCE else context.client_host,
        )
    except KafkaError as problem:
        fenced = problem.code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE
        return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else problem.code
    return ErrorCode.NONE


def _by_topic(
    topics: list[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition_index, partition_error_code=codes[topic.name, partition_index]
                )
                for partition_index in topic.partitions
            ],
        )
        for topic in topics
    ]
