"""State of share groups' partitions at a share coordinator (KIP-932)."""

from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    Uuid,
    ignorable,
    since,
)


@struct
class InitializeStatePartition:
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@struct
class InitializeStateData:
    topic_id: Uuid
    partitions: list[InitializeStatePartition]


@message(api_key=83, direction="request", versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest:
    group_id: Str
    topics: list[InitializeStateData]


@struct
class InitializeStatePartitionResult:
    partition: Int32
    error_code: Int16
    error_message: NullableStr = None


@struct
class InitializeStateResult:
    topic_id: Uuid
    partitions: list[InitializeStatePartitionResult]


@message(api_key=83, direction="response", versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult]


@struct
class ReadStatePartition:
    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateData:
    topic_id: Uuid
    partitions: list[ReadStatePartition]


@message(api_key=84, direction="request", versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest:
    group_id: Str
    topics: list[ReadStateData]


@struct
class StateBatch:
    """Records of a range, bounds included: `delivery_state` 0 available, 2 acknowledged, 4 archived."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class ReadStatePartitionResult:
    partition: Int32
    error_code: Int16
    error_message: NullableStr = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


@struct
class ReadStateResult:
    topic_id: Uuid
    partitions: list[ReadStatePartitionResult]


@message(api_key=84, direction="response", versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse:
    results: list[ReadStateResult]


@struct
class WriteStatePartition:
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
    state_batches: list[StateBatch]


@struct
class WriteStateData:
    topic_id: Uuid
    partitions: list[WriteStatePartition]


@message(api_key=85, direction="request", versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest:
    """Changes of the state; an older state or leader epoch is fenced."""

    group_id: Str
    topics: list[WriteStateData]


@struct
class WriteStateResult:
    topic_id: Uuid
    partitions: list[InitializeStatePartitionResult]


@message(api_key=85, direction="response", versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse:
    results: list[WriteStateResult]


@struct
class DeleteStatePartition:
    partition: Int32


@struct
class DeleteStateData:
    topic_id: Uuid
    partitions: list[DeleteStatePartition]


@message(api_key=86, direction="request", versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest:
    group_id: Str
    topics: list[DeleteStateData]


@struct
class DeleteStateResult:
    topic_id: Uuid
    partitions: list[InitializeStatePartitionResult]


@message(api_key=86, direction="response", versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult]


@struct
class ReadStateSummaryData:
    topic_id: Uuid
    partitions: list[ReadStatePartition]


@message(api_key=87, direction="request", versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest:
    group_id: Str
    topics: list[ReadStateSummaryData]


@struct
class ReadSummaryStatePartitionResult:
    partition: Int32
    error_code: Int16
    error_message: NullableStr = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1


@struct
class ReadStateSummaryResult:
    topic_id: Uuid
    partitions: list[ReadSummaryStatePartitionResult]


@message(api_key=87, direction="response", versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult]
