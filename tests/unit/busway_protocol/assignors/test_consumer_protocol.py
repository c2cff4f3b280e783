"""The bytes of subscriptions and assignments."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_protocol.assignors.consumer_protocol import (
    assignment_with_user_data,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.compile import REQUEST_ELEMENTS_MAX
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
    """Version 9 with bytes at the end that are unknown here."""
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
def test_other_bytes_are_refused(data: bytes) -> None:
    """A group may speak a protocol of its own: never an exception of another kind."""
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(MalformedMessage):
            decode(data)


def test_a_server_reads_no_more_of_what_a_peer_has_made_than_of_a_request() -> None:
    """A subscription or an assignment of a few megabytes may name millions of topics; a client, whose own leader it is, reads it all."""
    topics = tuple(f"{at:05}" for at in range(REQUEST_ELEMENTS_MAX))
    assert decode_subscription(encode_subscription(Subscription(topics=topics)), bounded=True).topics == topics
    data = encode_subscription(Subscription(topics=(*topics, "t")))
    assert len(decode_subscription(data).topics) == REQUEST_ELEMENTS_MAX + 1
    with pytest.raises(MalformedMessage, match="more than 12,000 elements"):
        decode_subscription(data, bounded=True)
    data = encode_assignment([("t", number) for number in range(REQUEST_ELEMENTS_MAX)])
    assert len(decode_assignment(data)) == REQUEST_ELEMENTS_MAX
    with pytest.raises(MalformedMessage, match="more than 12,000 elements"):
        assignment_with_user_data(data, bounded=True)
