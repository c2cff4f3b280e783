"""Validation of records in steps, by the loop and by its twin in C."""

import pytest

from busway_protocol.records import walk
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.walk import OFFENDERS_MAX, RecordWalk, record_times


@pytest.fixture(params=["loop", "compiled"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both; the twin is missing where there was no compiler."""
    if request.param == "loop":
        monkeypatch.setattr(walk, "plain", None)
    return


def batch_of(*keys: bytes | None, times: tuple[int, ...] = (), **headers: bytes) -> tuple[BatchHeader, bytes]:
    """Return the header and the records of a batch; times in ms, by default 1,000."""
    builder = BatchBuilder()
    for number, key in enumerate(keys):
        timestamp_ms = times[number] if times else 1_000
        builder.append(timestamp_ms, key, b"value", tuple(headers.items()))
    batch = builder.build(base_offset=50)
    return read_header(batch), batch[HEADER_BYTES:]


def walked(header: BatchHeader, data: bytes, records: int) -> tuple[RecordWalk, int]:
    """Walk to the end by so many records a step; return the walk and the number of steps."""
    made, steps = RecordWalk(header, data), 1
    while made.step(records):
        steps += 1
    return made, steps


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_valid_records_in_steps(count: int) -> None:
    """Offsets from 64 on have two bytes; a step ends in the middle as well as at the end."""
    header, data = batch_of(*[b"k"] * count, name=b"content")
    for records in (1, 7, count, 10_000):
        _, steps = walked(header, data, records)
        assert steps == -(-count // min(records, count))


def test_keys_that_are_missing() -> None:
    """The first are named, all are counted."""
    header, data = batch_of(b"k", None, b"", None)
    made, _ = walked(header, data, 2)
    assert (made.keyless, made.keyless_count) == ([1, 3], 2)
    header, data = batch_of(*[None] * (OFFENDERS_MAX + 5))
    made, _ = walked(header, data, 100)
    assert made.keyless == list(range(OFFENDERS_MAX))
    assert made.keyless_count == OFFENDERS_MAX + 5


def test_times_are_those_of_the_records() -> None:
    """The header's maximum is the producer's word and is not read."""
    header, data = batch_of(b"a", b"b", b"c", times=(1_000, 3_000, 500))
    made, _ = walked(header._replace(max_timestamp=9), data, 2)
    assert (made.earliest, made.latest) == (500, 3_000)
    assert list(record_times(header, data)) == [(50, 1_000), (51, 3_000), (52, 500)]


def test_append_time_holds_for_all_records() -> None:
    """Attribute bit 3 says that the broker's clock counts."""
    header, data = batch_of(b"a", b"b", times=(1_000, 2_000))
    stamped = header._replace(attributes=header.attributes | 8, max_timestamp=7_000)
    assert [time for _, time in record_times(stamped, data)] == [7_000, 7_000]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-1], "a record reaches beyond its batch"),
        (lambda data: data + b"\0", "1 bytes follow the last record"),
        (lambda data: b"\1" + data[1:], "record 0 has a negative size"),
        (lambda data: bytes([data[0] + 2]) + data[1:], "record 0 has another size than it announces"),
        (lambda data: data[:3] + b"\x02" + data[4:], "record 0 does not have the offset behind the one before it"),
        (lambda data: data[: data[0] // 2] + b"\x7e" + data[data[0] // 2 + 1 :], "record 0 cannot have 63 headers"),
    ],
)
def test_damage_is_named(damage: object, problem: str) -> None:
    """With the offset of its batch."""
    header, data = batch_of(b"k", b"k")
    with pytest.raises(CorruptBatch, match=f"the records of the batch at offset 50 are damaged: {problem}"):
        walked(header, damage(data), 10)  # type: ignore[operator]


def test_a_header_without_a_name() -> None:
    """Its name has a negative length."""
    header, data = batch_of(b"k", n=b"c")
    at = data.index(b"\x02n\x02c")
    with pytest.raises(CorruptBatch, match="record 0 has a header without a name"):
        walked(header, data[:at] + b"\x01" + data[at + 1 :], 10)


def test_times_of_damaged_records() -> None:
    """Only what would be read beyond the end is an error."""
    header, data = batch_of(b"k", b"k")
    with pytest.raises(CorruptBatch, match="record 1 reaches beyond its batch"):
        list(record_times(header, data[:-1]))
