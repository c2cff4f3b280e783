"""Records of `__transaction_state`, byte by byte."""

import copy

import pytest

from busway_bus.transactions.records import (
    PartitionsSchema,
    TransactionLogValue,
    key_bytes,
    parse_key,
    parse_value,
    value_bytes,
)
from busway_protocol.errors import MalformedMessage, UnencodableMessage

VALUE = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 5])],
    transaction_last_update_timestamp_ms=1_000,
    transaction_start_timestamp_ms=900,
)


def test_a_key_is_its_version_and_the_id() -> None:
    """The version comes first, in two bytes."""
    assert key_bytes("id") == b"\x00\x00\x00\x02id"
    assert parse_key(key_bytes("id")) == "id"


def test_a_key_of_an_unknown_type_is_none() -> None:
    """A later version of Kafka may write others; damage of a known one is an error."""
    assert parse_key(b"\x00\x01\x00\x02id") is None
    with pytest.raises(MalformedMessage):
        parse_key(b"\x00\x00\x00\x09id")


def test_version_0_has_no_tagged_fields() -> None:
    """A value that needs them is refused: version 0 would lose it."""
    assert value_bytes(VALUE, 0).hex() == (
        "0000" "0000000000000007" "0002" "0000ea60" "01" "00000001" "000174" "00000002" "00000000" "00000005"
        "00000000000003e8" "0000000000000384"
    )  # fmt: skip
    assert parse_value(value_bytes(VALUE, 0)) == (VALUE, 0)
    newer = copy.copy(VALUE)
    newer.client_transaction_version = 2
    assert parse_value(value_bytes(newer, 1)) == (newer, 1)
    with pytest.raises(UnencodableMessage, match="client_transaction_version"):
        value_bytes(newer, 0)


def test_a_value_of_an_unknown_version_names_it() -> None:
    """A downgrade must not misread the log."""
    with pytest.raises(MalformedMessage, match="TransactionLogValue in version 2, but 1 is the last one known here"):
        parse_value(b"\x00\x02" + value_bytes(VALUE, 1)[2:])
    with pytest.raises(MalformedMessage):
        parse_value(value_bytes(VALUE, 1)[:-4])
