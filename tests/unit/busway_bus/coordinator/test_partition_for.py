"""Which partition of `__consumer_offsets` holds a group."""

import pytest

from busway_bus.coordinator.placement import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    """Values of `String.hashCode`, with the least int and a character outside the basic plane."""
    assert java_hash(text) == expected


def test_the_least_int_goes_to_partition_0() -> None:
    """`Utils.abs` of the least int is 0."""
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
