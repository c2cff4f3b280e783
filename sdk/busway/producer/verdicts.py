"""What a broker's answer, or none, means for a batch.

What lives here: the refusals that are alike, and how a batch is told of. What does not: what is done about them (`sender`).
"""

from typing import Final

from busway.producer.accumulator import Batch
from busway_protocol.errors import ErrorCode

LOST_TRACK: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The broker's last sequence number is not what was acknowledged: this batch was not written, and earlier ones may be lost there."""
WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""After the second, the broker knows no more where it put the batch."""
TOO_LARGE: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""The batch is larger than this setting of its topic; parts of it may not be."""
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
    """As messages show where a batch goes."""
    topic, number = batch.partition
    return f"{topic}-{number}"


def not_in_time(batch: Batch, timeout_ms: int) -> str:
    """What is told of a batch that was not acknowledged within delivery_timeout_ms."""
    written = "whether it was written is not known" if batch.uncertain else "it was not written"
    last = f"; the last attempt: {batch.problem}" if batch.problem is not None else ""
    return f"{name_of(batch)}: not acknowledged within {timeout_ms} ms, {written}{last}"
