"""Writing record batches."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    ZERO_UUID,
    BrokerId,
    Int16,
    Int32,
    Int64,
    NullableStr,
    NullableTransactionalId,
    Records,
    Str,
    TopicName,
    Uuid,
    ignorable,
    since,
    tag,
    until,
)


@struct
class PartitionProduceData:
    index: Int32
    records: Records = None


@struct
class TopicProduceData:
    name: Annotated[TopicName, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_data: list[PartitionProduceData]


@message(api_key=0, direction="request", versions=(3, 13), flexible=9)
class ProduceRequest:
    """Batches to append; topics by name up to version 12, by id from 13 on (KIP-516)."""

    transactional_id: Annotated[NullableTransactionalId, since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    """Index of a refused record, and the reason (KIP-467)."""

    batch_index: Annotated[Int32, since(8)] = 0
    batch_index_error_message: Annotated[NullableStr, since(8)] = None


@struct
class LeaderIdAndEpoch:
    """Current leader, which saves a metadata request (KIP-951)."""

    leader_id: Annotated[BrokerId, since(10)] = -1
    leader_epoch: Annotated[Int32, since(10)] = -1


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Annotated[Int64, since(2), ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8), ignorable] = field(default_factory=list)
    error_message: Annotated[NullableStr, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch, since(10), tag(0)] = field(default_factory=LeaderIdAndEpoch)


@struct
class TopicProduceResponse:
    name: Annotated[TopicName, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: Annotated[BrokerId, since(10)] = 0
    host: Annotated[Str, since(10)] = ""
    port: Annotated[Int32, since(10)] = 0
    rack: Annotated[NullableStr, since(10)] = None


@message(api_key=0, direction="response", versions=(3, 13), flexible=9)
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    node_endpoints: Annotated[list[NodeEndpoint], since(10), tag(0)] = field(default_factory=list)
