"""Producer identities and transactions."""

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
    """Request for a producer id and epoch, idempotent or transactional (KIP-98, KIP-360)."""

    transactional_id: NullableTransactionalId
    transaction_timeout_ms: Int32
    producer_id: Annotated[ProducerId, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


@message(api_key=22, direction="response", versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16
    producer_id: ProducerId = -1
    producer_epoch: Int16


@struct
class AddPartitionsToTxnTopic:
    name: TopicName
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: Annotated[TransactionalId, since(4)] = ""
    producer_id: Annotated[ProducerId, since(4)] = 0
    producer_epoch: Annotated[Int16, since(4)] = 0
    verify_only: Annotated[Bool, since(4)] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], since(4)] = field(default_factory=list)


@message(api_key=24, direction="request", versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Partitions to add to a transaction: up to version 3 from a client, from version 4 on from a broker for several
    (KIP-890).
    """

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = field(default_factory=list)
    v3_and_below_transactional_id: Annotated[TransactionalId, until(3)] = ""
    v3_and_below_producer_id: Annotated[ProducerId, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3)] = field(default_factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: TopicName
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: Annotated[TransactionalId, since(4)] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], since(4)] = field(default_factory=list)


@message(api_key=24, direction="response", versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = field(default_factory=list)
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = field(
        default_factory=list
    )


@message(api_key=25, direction="request", versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: Int16
    group_id: GroupId


@message(api_key=25, direction="response", versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16


@message(api_key=26, direction="request", versions=(0, 5), flexible=3)
class EndTxnRequest:
    """Commit or abort of a transaction; raises the epoch from version 5 on (KIP-890)."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: Int16
    committed: Bool


@message(api_key=26, direction="response", versions=(0, 5), flexible=3)
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Annotated[ProducerId, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1


@struct
class WritableTxnMarkerTopic:
    name: TopicName
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    producer_id: ProducerId
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


@message(api_key=27, direction="request", versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    """Markers that a coordinator writes into partitions (KIP-98, KIP-1228)."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: TopicName
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: ProducerId
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=27, direction="response", versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]


@struct
class TxnOffsetCommitRequestPartition:
    """Offset of a partition once the transaction commits."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: NullableStr


@struct
class TxnOffsetCommitRequestTopic:
    name: TopicName
    partitions: list[TxnOffsetCommitRequestPartition]


@message(api_key=28, direction="request", versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    """A group's offsets to commit with a transaction (KIP-98, KIP-447); version 5 adds the group implicitly."""

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
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: TopicName
    partitions: list[TxnOffsetCommitResponsePartition]


@message(api_key=28, direction="response", versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class TopicRequest:
    name: TopicName
    partition_indexes: list[Int32]


@message(api_key=61, direction="request", versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    topics: list[TopicRequest]


@struct
class ProducerState:
    """State of one producer in a partition; -1 for missing values."""

    producer_id: ProducerId
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: NullableStr = None
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    name: TopicName
    partitions: list[PartitionResponse]


@message(api_key=61, direction="response", versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse]


@message(api_key=65, direction="request", versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    transactional_ids: list[TransactionalId]


@struct
class TopicData:
    topic: TopicName
    partitions: list[Int32]


@struct
class DescribeTransactionState:
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
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionState]


@message(api_key=66, direction="request", versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    """Request for a broker's transactions.

    Filters: state, producer, age in milliseconds (KIP-994), and a regular expression for the whole transactional id
    (KIP-1152).
    """

    state_filters: list[Str]
    producer_id_filters: list[ProducerId]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[NullableStr, since(2)] = None


@struct
class ListTransactionState:
    transactional_id: TransactionalId
    producer_id: ProducerId
    transaction_state: Str


@message(api_key=66, direction="response", versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: list[Str]
    transaction_states: list[ListTransactionState]
