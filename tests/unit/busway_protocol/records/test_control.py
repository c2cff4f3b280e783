"""Markers at the ends of transactions, byte by byte."""

import pytest

from busway_protocol.records.batch import CorruptBatch, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import TransactionMarker, control_type, end_transaction_marker, read_marker


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_one_record_with_its_type_and_the_coordinators_epoch(committed):
    """In a batch of the producer that has no sequence."""
    batch = end_transaction_marker(77, 3, committed=committed, coordinator_epoch=12, timestamp_ms=1_000)
    header = read_header(batch)
    verify_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    assert (header.is_control, header.is_transactional, header.records_count) == (True, True, 1)
    assert batch.endswith(bytes.fromhex(f"08 0000 000{int(committed)} 0c 0000 0000000c 00"))
    assert read_marker(batch) == TransactionMarker(committed=committed, coordinator_epoch=12, timestamp=1_000)


def control(key: bytes | None, value: bytes | None) -> bytes:
    """A control batch that holds this."""
    builder = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
    builder.append(0, key, value)
    return builder.build()


def test_later_versions_are_read_as_far_as_they_are_known():
    """More may follow in key and value."""
    batch = control(b"\0\1\0\1more", b"\0\1\0\0\0\7more")
    assert read_marker(batch) == TransactionMarker(committed=True, coordinator_epoch=7, timestamp=0)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 99])
def test_other_control_records_are_no_markers(kind):
    """Those of metadata logs, and what is to come."""
    assert read_marker(control(b"\0\0\0" + bytes([kind]), b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b""),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\0\0\1", b""),
    ],
)
def test_what_is_no_marker_is_told(key, value):
    """Whether a transaction was committed is never guessed."""
    with pytest.raises(CorruptBatch):
        read_marker(control(key, value))


def test_a_marker_of_a_negative_version_is_damage():
    """As in Kafka."""
    with pytest.raises(CorruptBatch, match="version"):
        read_marker(control(b"\0\0\0\1", b"\xff\xff\0\0\0\0"))
    assert control_type(b"\0\0\0\2") == 2
