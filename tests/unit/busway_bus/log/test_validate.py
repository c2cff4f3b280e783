"""What a client may not write, at the level of the batch's header and, in compacted topics, of its keys."""

import pytest

from busway_bus.log.log_config import LogConfig
from busway_bus.log.validate import check_batch
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import computed_crc
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
HOUR = 3_600_000
COMPACTED = LogConfig(cleanup_policy=("compact",))


def batch(*, key: bytes | None = b"k", value: bytes = b"v", timestamp: int = NOW, count: int = 2, **options) -> bytes:
    """A batch with `count` records."""
    builder = BatchBuilder(**options)
    for _ in range(count):
        builder.append(timestamp, key, value)
    return builder.build()


def lying(position: int, content: bytes) -> bytes:
    """A batch with other bytes at `position` and a checksum that fits."""
    data = bytearray(batch())
    data[position : position + len(content)] = content
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "config", "code"),
    [
        (batch(), LogConfig(), None),
        (batch(compression="zstd"), LogConfig(), None),
        (batch(key=None), LogConfig(), None),
        (batch(compression="gzip"), COMPACTED, None),
        (b"", LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:60], LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:-1], LogConfig(), ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"?", LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(8, (-1).to_bytes(4, "big", signed=True)), LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (lying(8, bytes(4)), LogConfig(), ErrorCode.CORRUPT_MESSAGE),
        (lying(16, b"\1"), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(0, (5).to_bytes(8, "big")), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(22, b"\5"), LogConfig(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lying(22, b"\x20"), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(22, b"\x08"), LogConfig(), ErrorCode.INVALID_TIMESTAMP),
        (lying(22, b"\x08"), LogConfig(message_timestamp_type="LogAppendTime"), None),
        (lying(23, bytes(4)), LogConfig(), ErrorCode.INVALID_RECORD),
        (lying(57, bytes(4)), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=-1, base_sequence=0), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=0, base_sequence=-1), LogConfig(), ErrorCode.INVALID_RECORD),
        (batch(timestamp=NOW + HOUR), LogConfig(), None),
        (batch(timestamp=NOW + HOUR + 1), LogConfig(), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamp=NOW + HOUR + 1), LogConfig(message_timestamp_type="LogAppendTime"), None),
        (batch(timestamp=-1), LogConfig(message_timestamp_before_max_ms=1), None),
        (batch(timestamp=NOW - 10), LogConfig(message_timestamp_before_max_ms=10), None),
        (batch(timestamp=NOW - 11), LogConfig(message_timestamp_before_max_ms=10), ErrorCode.INVALID_TIMESTAMP),
        (batch(), LogConfig(max_message_bytes=len(batch())), None),
        (batch(), LogConfig(max_message_bytes=len(batch()) - 1), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(key=None), COMPACTED, ErrorCode.INVALID_RECORD),
        (batch(key=None, compression="lz4"), COMPACTED, ErrorCode.INVALID_RECORD),
        (lying(61, b"\x7e"), COMPACTED, ErrorCode.CORRUPT_MESSAGE),
        (
            batch(value=bytes(10**7), compression="zstd"),
            LogConfig(cleanup_policy=("compact",), max_message_bytes=100_000),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_each_lie_has_its_error_code(records, config, code):
    """Kafka's code, or the header where all is well."""
    if code is None:
        assert check_batch(memoryview(records), config, NOW).records_count == 2
        return
    with pytest.raises(KafkaError) as caught:
        check_batch(memoryview(records), config, NOW)
    assert caught.value.code is code
    assert caught.value.message
