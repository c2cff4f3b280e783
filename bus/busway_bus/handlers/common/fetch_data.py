"""One partition in a fetch response.

Here: refusals, divergence of the reader's log, what an incremental session leaves out.
Not here: reading the records (`fetch`).
"""

from busway_bus.handlers.common.leader_hints import LeaderHints
from busway_bus.replication.fetch_sessions import CachedPartition
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.fetch import EpochEndOffset, NodeEndpoint, PartitionData


def diverging_end(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Return where this log diverges from the client's (KIP-595).

    OFFSET_OUT_OF_RANGE: the epoch is unknown.
    """
    if epoch < 0:
        return None
    common_epoch, end = epoch, partition.log.end_offset
    if epoch != partition.leader_epoch:  # known before its first batch
        common_epoch, end = partition.log.epochs.end_offset(epoch, end)
    if common_epoch < 0 or offset < partition.log.start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if common_epoch == epoch and end >= offset:
        return None
    return EpochEndOffset(epoch=common_epoch, end_offset=end)


def refused(cached: CachedPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=cached.request.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def is_news(cached: CachedPartition, data: PartitionData) -> bool:
    return bool(
        data.records
        or data.error_code != ErrorCode.NONE
        or cached.error != ErrorCode.NONE
        or data.high_watermark != cached.high_watermark
        or data.log_start_offset != cached.log_start_offset
        or data.diverging_epoch.epoch >= 0
        or data.preferred_read_replica >= 0
    )


def endpoints(hints: LeaderHints) -> list[NodeEndpoint]:
    return [
        NodeEndpoint(node_id=node_id, host=address.host, port=address.port, rack=rack)
        for node_id, address, rack in hints.nodes.values()
    ]
