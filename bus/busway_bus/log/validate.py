"""Validation of the header of a client's batch.

Here: Kafka's `LogValidator` checks before the records (KIP-98, KIP-937).
Not here: the records (`inspection`), sequence numbers (`producer_state`).
"""

from busway_bus.log.log_config import LogConfig
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, verify_crc
from busway_protocol.records.compression import NAMES
from busway_protocol.types import Buffer

NO_TIMESTAMP = -1


def check_batch(records: Buffer, config: LogConfig) -> BatchHeader:
    """Check that `records` is one valid batch; return its header.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        header = read_header(records)
    except CorruptBatch as problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(problem)) from None
    size = header.size_bytes
    if size < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch says it has {size} bytes, fewer than its header")
    if size > len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch says it has {size} bytes, {len(records)} came")
    if size != len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "more than one batch for one partition in a request")
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes allows {config.max_message_bytes}",
        )
    try:
        verify_crc(records, header)
    except CorruptBatch as problem:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
    _check_header(header)
    _check_timestamp_type(header, config)
    return header


def _check_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch begins at offset {header.base_offset}; a client's begins at 0"
        )
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records do not fit a last offset delta of {header.last_offset_delta}",
        )
    if header.compression not in NAMES:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.compression} is not known")
    if header.is_transactional and header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a batch of a transaction needs a producer id")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence")


def _check_timestamp_type(header: BatchHeader, config: LogConfig) -> None:
    if config.message_timestamp_type == "CreateTime" and header.max_timestamp != NO_TIMESTAMP and header.timestamp_type:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set LogAppendTime")


def check_times(timestamp: int, config: LogConfig, now_ms: int) -> str | None:
    """Return the problem of a timestamp in ms, None without (KIP-937)."""
    ahead = timestamp - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        return f"a timestamp is {ahead} ms ahead of the broker's clock"
    if -ahead > config.message_timestamp_before_max_ms:
        return f"a timestamp is {-ahead} ms behind the broker's clock"
    return None
