"""The bytes of subscriptions and assignments."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_protocol.assignors.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import MalformedMessage


def test_a_version_0_subscription_has_javas_bytes() -> None:
    """Version, topics, null user data: the layout that every client since 0.9 writes."""
    data = encode_subscription(Subscription(topics=("t",)), version=0)
    assert data == bytes.fromhex("0000 00000001 0001 74 ffffffff")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_come_back_as_far_as_the_version_carries_them(version: int) -> None:
    """Owned partitions since 1, generation since 2, rack since 3."""
    before = Subscription(
        topics=("a", "b"), owned_partitions=(("a", 0), ("a", 2)), generation_id=7, rack_id="r", user_data=b"x"
    )
    after = decode_subscription(encode_subscription(before, version))
    assert after.topics == before.topics
    assert after.user_data == b"x"
    assert after.owned_partitions == (before.owned_partitions if version >= 1 else ())
    assert after.generation_id == (7 if version >= 2 else -1)
    assert after.rack_id == ("r" if version >= 3 else None)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    """Version 9 with bytes at the end that nobody here knows."""
    data = encode_subscription(Subscription(topics=("a",)))
    assert decode_subscription(b"\x00\x09" + data[2:] + b"new").topics == ("a",)


@given(st.sets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9))))
def test_assignments_come_back(partitions: set[tuple[str, int]]) -> None:
    """Encoded and decoded, an assignment is the same."""
    assert decode_assignment(encode_assignment(partitions)) == sorted(partitions)


def test_empty_bytes_are_an_empty_assignment() -> None:
    """What a member without partitions gets from some leaders."""
    assert decode_assignment(b"") == []


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_not_understood(data: bytes) -> None:
    """A group may speak a protocol of its own: never an exception of another kind."""
    subscribed_topics(data)
    with contextlib.suppress(MalformedMessage):
        decode_assignment(data)
