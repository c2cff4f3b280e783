"""Dead letters as records: their headers, how many go into a batch, and what they take along."""

import pytest

from busway_bus.share.dead_letter_records import NOTHING, Content, Origin, contents_of, first_of, pack
from busway_bus.share.in_flight import Cause, Letter
from busway_protocol.records.batch import CorruptBatch
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

ORIGIN = Origin("work", 3, "workers")
LETTERS = [Letter(5, 7, 1, Cause.REJECTED), Letter(9, 9, 5, Cause.DELIVERED_TOO_OFTEN)]


def source(codec: str = "none", base: int = 4) -> bytes:
    """A batch of ten records; the third has neither key nor value."""
    builder = BatchBuilder(codec)
    for number in range(10):
        builder.append(
            1000 + number, None if number == 2 else b"k%d" % number, None if number == 2 else b"v%d" % number
        )
    return builder.build(base)


def taken(batch: bytes, *offsets: int) -> dict[int, Content]:
    """What `contents_of` finds."""
    steps = contents_of(batch, offsets)
    try:
        while True:
            next(steps)
    except StopIteration as over:
        contents: dict[int, Content] = over.value
        return contents


def test_headers_are_those_of_kafka() -> None:
    """One record each, with what is known of it."""
    packed = pack(LETTERS, {6: Content(b"k", b"v")}, ORIGIN, wall_ms=77, max_bytes=10_000)
    assert (packed.records, packed.cut) == (4, False)
    records = decode_records(packed.batch)
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        (None, None, 77),
        (b"k", b"v", 77),
        (None, None, 77),
        (None, None, 77),
    ]
    assert records[3].headers == (
        ("__dlq.errors.topic", b"work"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"9"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    )
    assert records[0].headers[-1] == ("__dlq.errors.message", b"Offset rejected by client.")


@pytest.mark.parametrize("max_bytes", [300, 500, 700, 1000])
def test_a_batch_is_no_larger_than_it_may_be(max_bytes: int) -> None:
    """The rest is for the next one; one is in it in any case."""
    packed = pack(LETTERS, {}, ORIGIN, wall_ms=77, max_bytes=max_bytes)
    assert 1 <= packed.records <= 4
    assert len(packed.batch) <= max_bytes


def test_a_value_that_is_too_large_stays_behind() -> None:
    """Where the record is first; elsewhere it waits until it is."""
    large = Content(b"k", b"v" * 2000)
    first = pack(LETTERS, {5: large}, ORIGIN, wall_ms=77, max_bytes=1000)
    assert first.cut
    assert decode_records(first.batch)[0].value is None
    later = pack(LETTERS, {6: large}, ORIGIN, wall_ms=77, max_bytes=1000)
    assert (later.records, later.cut) == (1, False)


def test_the_first_of_letters() -> None:
    """Cut where so many records end."""
    assert first_of(LETTERS, 0) == []
    assert first_of(LETTERS, 2) == [Letter(5, 6, 1, Cause.REJECTED)]
    assert first_of(LETTERS, 4) == first_of(LETTERS, 9) == LETTERS


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_found_in_their_batch(codec: str) -> None:
    """By their offsets, nulls as nulls; what is not there is left out."""
    assert taken(source(codec), 4, 6, 13, 14) == {
        4: Content(b"k0", b"v0"),
        6: NOTHING,
        13: Content(b"k9", b"v9"),
    }


def test_a_damaged_batch_is_refused() -> None:
    """Not read beyond its end."""
    batch = source()
    with pytest.raises(CorruptBatch):
        taken(batch[: len(batch) - 40], 13)


def test_a_value_that_is_not_what_was_written_is_no_letters() -> None:
    """One flipped bit that leaves the records readable."""
    batch = bytearray(source())
    at = batch.index(b"v9")
    batch[at] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        taken(bytes(batch), 13)
