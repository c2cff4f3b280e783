"""Record batches as Arrow columns, beside the record decoder that consumers use."""

import random
from typing import Any

import pytest
from tests.support.seeds import seed

from busway import TopicPartition
from busway_protocol.errors import ProtocolError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.compression import CODECS
from busway_protocol.records.record import decode_records
from busway_spark.columns import to_arrow

pytestmark = pytest.mark.spark
WHERE = TopicPartition("t", 3)


def some_batches(chance: random.Random, count: int) -> tuple[list[Any], int]:
    """Batches of all codecs with gaps between them, and the offset behind them."""
    batches, offset = [], 0
    for number in range(count):
        builder = BatchBuilder(list(CODECS)[number % len(CODECS)], timestamp_type=number % 7 == 0)
        size = chance.randint(1, 60)
        for _ in range(size):
            key = None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 3, 200]))
            value = None if chance.random() < 0.1 else chance.randbytes(chance.choice([0, 39, 9000]))
            headers = [("a", b"1"), ("é", None)] if chance.random() < 0.1 else ()
            builder.append(1_700_000_000_000 + chance.randint(-50, 10**6), key, value, headers)
        offset += chance.randint(0, 5)
        raw = builder.build(offset)
        offset += size
        batches.append((read_header(raw), memoryview(raw)))
    return batches, offset


@pytest.mark.slow
def test_columns_equal_records() -> None:
    """Keys, values, headers, offsets and times of random batches, of every codec and with gaps, are those of the record decoder."""
    batches, end = some_batches(random.Random(seed(1)), 60)
    first, last = end // 5, end - 7
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": record.timestamp_type,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for _, batch in batches
        for record in decode_records(batch)
        if first <= record.offset < last
    ]
    rows = [row for arrow_batch in to_arrow(batches, WHERE, first, last) for row in arrow_batch.to_pylist()]
    for row in rows:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    assert rows == expected


def test_damaged_records_are_refused() -> None:
    """Whatever byte of the records is changed, the columns are refused or as long as before; nothing else is raised."""
    builder = BatchBuilder()
    for number in range(5):
        builder.append(number, b"key", b"value" * number, [("h", b"x")])
    raw = builder.build(10)
    refused = 0
    for position in range(61, len(raw)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            damaged = bytearray(raw)
            damaged[position] = byte
            try:
                rows = sum(
                    arrow_batch.num_rows
                    for arrow_batch in to_arrow([(read_header(raw), memoryview(damaged))], WHERE, 0, 99)
                )
            except ProtocolError:
                refused += 1
            else:
                assert rows <= 5
    assert refused > 100
