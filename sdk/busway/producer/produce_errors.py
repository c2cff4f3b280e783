"""Meaning of a Produce response, or of none, for a batch.

Not here: reactions (`sender`).
"""

from typing import Final

from busway.errors import DeliveryFailed
from busway.producer.accumulator import Batch
from busway_protocol.errors import ErrorCode

LOST_TRACK: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The broker has another last sequence number: this batch was not written, earlier ones may be lost."""
WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""After a duplicate, the broker has forgotten the batch's offset."""
TOO_LARGE: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""The topic setting that the batch exceeds; its halves may fit."""
STALE_LEADER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def name_of(batch: Batch) -> str:
    topic, partition_index = batch.partition
    return f"{topic}-{partition_index}"


def not_in_time(batch: Batch, timeout_ms: int) -> str:
    written = "whether it was written is not known" if batch.uncertain else "it was not written"
    last = f"; the last attempt: {batch.problem}" if batch.problem is not None else ""
    return f"{name_of(batch)}: not acknowledged within {timeout_ms} ms, {written}{last}"


def stopped(batch: Batch) -> DeliveryFailed:
    return DeliveryFailed(f"{name_of(batch)}: the producer was stopped before it was acknowledged")
