"""Producer identities and transactions.

Messages: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeProducers,
DescribeTransactions, ListTransactions. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    GroupId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    NullableTransactionalId,
    ProducerId,
    Str,
    TopicName,
    TransactionalId,
    ignorable,
    since,
    until,
)


@message(api_key=22, direction="request", versions=(0, 5), flexible=2)
class InitProducerIdRequest:
    """Asks for a producer id and epoch, for idempotent and transactional producers (KIP-98, KIP-360)."""

    transactional_id: NullableTransactionalId
    transaction_timeout_ms: Int32
    producer_id: Annotated[ProducerId, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


@message(api_key=22, direction="response", versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    """The producer id and its epoch."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16
    producer_id: ProducerId = -1
    producer_epoch: Int16


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic that become part of a transaction."""

    name: TopicName
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """One transaction of a batch: whose it is, and whether its partitions are added or only looked up."""

    transactional_id: Annotated[TransactionalId, since(4)] = ""
    producer_id: Annotated[ProducerId, since(4)] = 0
    producer_epoch: Annotated[Int16, since(4)] = 0
    verify_only: Annotated[Bool, since(4)] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], since(4)] = field(default_factory=list)


@message(api_key=24, direction="request", versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Adds partitions to a transaction: up to version 3 a client's, from version 4 on a broker's for several (KIP-890)."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = field(default_factory=list)
    v3_and_below_transactional_id: Annotated[TransactionalId, until(3)] = ""
    v3_and_below_producer_id: Annotated[ProducerId, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3)] = field(default_factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    """Whether a partition is part of the transaction now."""

    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    """The outcome for the partitions of one topic."""

    name: TopicName
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """The outcome for one transaction of a batch."""

    transactional_id: Annotated[TransactionalId, since(4)] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], since(4)] = field(default_factory=list)


@message(api_key=24, direction="response", versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """The outcome of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = field(default_factory=list)
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = field(
        default_factory=list
    )


@message(api_key=25, direction="request", versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    """Adds the offsets of a group to a transaction."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: Int16
    group_id: GroupId


@message(api_key=25, direction="response", versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Whether the group's offsets are part of the transaction now."""

    throttle_time_ms: Int32 = 0
    error_code: Int16


@message(api_key=26, direction="request", versions=(0, 5), flexible=3)
class EndTxnRequest:
    """Commits or aborts a transaction; from version 5 on its end raises the epoch (KIP-890)."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: Int16
    committed: Bool


@message(api_key=26, direction="response", versions=(0, 5), flexible=3)
class EndTxnResponse:
    """Whether the end is decided, and who the producer is from now on."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Annotated[ProducerId, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1


@struct
class WritableTxnMarkerTopic:
    """Partitions of one topic that get a marker."""

    name: TopicName
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    """The end of one transaction, and the partitions where it is to be written."""

    producer_id: ProducerId
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


@message(api_key=27, direction="request", versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    """A coordinator has the ends of transactions written into partitions (KIP-98, KIP-1228)."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    """Whether the marker is in the partition."""

    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    """The outcome for the partitions of one topic."""

    name: TopicName
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """The outcome for one marker."""

    producer_id: ProducerId
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=27, direction="response", versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """The outcome of each marker."""

    markers: list[WritableTxnMarkerResult]


@struct
class TxnOffsetCommitRequestPartition:
    """How far a partition is read once the transaction commits."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: NullableStr


@struct
class TxnOffsetCommitRequestTopic:
    """The offsets in the partitions of one topic."""

    name: TopicName
    partitions: list[TxnOffsetCommitRequestPartition]


@message(api_key=28, direction="request", versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    """Commits offsets of a group as part of a transaction (KIP-98, KIP-447); version 5 adds the group by itself."""

    transactional_id: TransactionalId
    group_id: GroupId
    producer_id: ProducerId
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    """Whether the offset waits for the end of the transaction."""

    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    """The outcome for the partitions of one topic."""

    name: TopicName
    partitions: list[TxnOffsetCommitResponsePartition]


@message(api_key=28, direction="response", versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """The outcome of each offset."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class TopicRequest:
    """The partitions of one topic that are asked about."""

    name: TopicName
    partition_indexes: list[Int32]


@message(api_key=61, direction="request", versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    """Asks which producers a partition knows (KIP-664)."""

    topics: list[TopicRequest]


@struct
class ProducerState:
    """What a partition knows of one producer; -1 where there is nothing."""

    producer_id: ProducerId
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    """The producers in the partitions of one topic."""

    name: TopicName
    partitions: list[PartitionResponse]


@message(api_key=61, direction="response", versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """The producers of each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse]


@message(api_key=65, direction="request", versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    """Asks for the state of transactions by name (KIP-664)."""

    transactional_ids: list[TransactionalId]


@struct
class TopicData:
    """The partitions of one topic that belong to a transaction."""

    topic: TopicName
    partitions: list[Int32]


@struct
class DescribeTransactionState:
    """The state of one transaction."""

    error_code: Int16
    transactional_id: TransactionalId
    transaction_state: Str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: ProducerId
    producer_epoch: Int16
    topics: list[TopicData]


@message(api_key=65, direction="response", versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """The state of each transaction asked about."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionState]


@message(api_key=66, direction="request", versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    """Asks for the transactions of a broker, filtered by state, producer, age in milliseconds (KIP-994) and a regular
    expression that the whole transactional id matches (KIP-1152)."""

    state_filters: list[Str]
    producer_id_filters: list[ProducerId]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[NullableStr, since(2)] = None


@struct
class ListTransactionState:
    """One transaction: whose it is and its state."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    transaction_state: Str


@message(api_key=66, direction="response", versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """The transactions that pass the filters."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: list[Str]
    transaction_states: list[ListTransactionState]
