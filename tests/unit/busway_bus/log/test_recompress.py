"""Topics that choose the codec of their batches."""

import pytest

from busway_bus.log.log_config import LogConfig
from busway_bus.log.recompress import recompressed, wanted_codec
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import HEADER_BYTES, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.compression import CODECS, inflate
from busway_protocol.records.record import decode_records

RECORDS = [(1000 + n, f"k{n}".encode(), b"v" * 100) for n in range(50)]


def batch(codec: str) -> bytes:
    """Fifty records of a producer with an id."""
    builder = BatchBuilder(codec, producer_id=7, producer_epoch=1, base_sequence=3)
    for timestamp, key, value in RECORDS:
        builder.append(timestamp, key, value)
    return bytes(builder.build())


@pytest.mark.parametrize("sent", list(CODECS))
@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_only_codec_length_and_checksum_change(sent: str, kept: str) -> None:
    """Records, times, producer and sequences are those that were sent."""
    config = LogConfig(compression_type=kept)
    codec = wanted_codec(config)
    assert codec is not None
    before = batch(sent)
    plain = inflate(CODECS[sent], before[HEADER_BYTES:], 1 << 20)
    recompressed_batch = recompressed(before, plain, codec, config)
    header = read_header(recompressed_batch)
    verify_crc(recompressed_batch, header)
    assert header.compression == codec
    changed = {"batch_length", "crc", "attributes"}
    old = read_header(before)._asdict()
    assert {name for name, value in header._asdict().items() if value != old[name]} <= changed
    decoded = decode_records(memoryview(recompressed_batch), max_decompressed=1 << 20)
    assert [(record.timestamp, record.key, record.value) for record in decoded] == RECORDS


def test_the_producers_codec_is_kept_by_default() -> None:
    """Nothing is taken out of its codec then."""
    assert wanted_codec(LogConfig()) is None


def test_a_batch_that_grows_beyond_the_limit_is_refused() -> None:
    """Uncompressed it would be larger than the topic allows."""
    sent = batch("zstd")
    config = LogConfig(compression_type="uncompressed", max_message_bytes=len(sent) + 10)
    with pytest.raises(KafkaError, match="as uncompressed") as refused:
        recompressed(sent, inflate(CODECS["zstd"], sent[HEADER_BYTES:], 1 << 20), 0, config)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
