"""Checks of a batch that a client sends, at the level of its header.

What lives here: what Kafka's `LogValidator` refuses (KIP-98, KIP-467, KIP-937). Records are not opened, but for topics that
are compacted, where each needs a key. What does not: sequence numbers (`producer_state`).
"""

from busway_bus.log.log_config import LogConfig
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, verify_crc
from busway_protocol.records.compression import NAMES, OutputTooLarge
from busway_protocol.records.record import decode_records
from busway_protocol.types import Buffer

NO_TIMESTAMP = -1


def check_batch(records: Buffer, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of the one batch that `records` must be.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP or UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        header = read_header(records)
    except CorruptBatch as problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(problem)) from None
    if header.size_bytes < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch says it has {header.size_bytes} bytes, fewer than its header"
        )
    if header.size_bytes > len(records):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch says it has {header.size_bytes} bytes, {len(records)} came"
        )
    if header.size_bytes != len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "more than one batch for one partition in a request")
    if header.size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size_bytes} bytes, max.message.bytes allows {config.max_message_bytes}",
        )
    try:
        verify_crc(records, header)
    except CorruptBatch as problem:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
    _check_header(header)
    _check_timestamps(header, config, now_ms)
    if config.compacted:
        _check_keys(records, config)
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
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type != "CreateTime" or header.max_timestamp == NO_TIMESTAMP:
        return
    if header.timestamp_type == 1:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set LogAppendTime")
    ahead = header.max_timestamp - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"a timestamp is {ahead} ms ahead of the broker's clock")
    behind = now_ms - header.base_timestamp
    if behind > config.message_timestamp_before_max_ms:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"a timestamp is {behind} ms behind the broker's clock")


def _check_keys(records: Buffer, config: LogConfig) -> None:
    try:
        keyless = [
            record.offset
            for record in decode_records(records, max_decompressed=16 * max(config.max_message_bytes, 65_536))
            if record.key is None
        ]
    except OutputTooLarge as problem:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(problem)) from None
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
    if keyless:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a record of a compacted topic has no key")
