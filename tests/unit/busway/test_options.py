"""Options of producers and consumers: each is checked by type and range, and the error names it."""

import re
from typing import Any

import pytest

from busway import App, BadDeclaration, Consumer, Producer
from busway.options import ConsumerOptions, ProducerOptions


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("linger_ms", "5", "linger_ms: '5' is a str, not a number"),
        ("linger_ms", -1, "linger_ms: -1 is below 0"),
        ("linger_ms", float("nan"), "linger_ms: nan is no number to count with"),
        ("linger_ms", float("inf"), "linger_ms: inf is no number to count with"),
        ("batch_size", 1.5, "batch_size: 1.5 is a float, not a whole number"),
        ("batch_size", True, "batch_size: True is a bool, not a whole number"),
        ("max_in_flight", 0, "max_in_flight: 0 is below 1"),
        ("request_timeout_ms", None, "request_timeout_ms: None is a NoneType, not a whole number"),
        ("metadata_timeout_ms", -5, "metadata_timeout_ms: -5 is below 1"),
        ("enable_idempotence", "false", "enable_idempotence: 'false' is a str, not True or False"),
        ("compression_type", "zip", "compression_type: 'zip' is not one of none, gzip, snappy, lz4, zstd"),
        ("acks", "most", "acks: 'most' is not 'all', -1, 1, 0, '1' or '0'"),
        ("acks", None, "acks: None is a NoneType, not a whole number or a text"),
        ("partitioner", 3, "partitioner: 3 is an int, not a function"),
        ("linger", 5, "linger is no option of ProducerOptions; did you mean linger_ms?"),
        ("zzz", 5, "zzz is no option of ProducerOptions; there are acks, enable_idempotence,"),
    ],
)
def test_a_producer_names_the_option_that_cannot_be(option: str, value: Any, text: str) -> None:
    """The same words, from a producer and from an app."""
    with pytest.raises((TypeError, ValueError)) as refusal:
        Producer(**{option: value})
    assert str(refusal.value).startswith(text)
    with pytest.raises(BadDeclaration) as refused:
        App("shop", producer={option: value})
    assert str(refused.value).startswith(f"app shop: {text}")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("group_id", 5, "group_id: 5 is an int, not a text"),
        ("session_timeout_ms", "45000", "session_timeout_ms: '45000' is a str, not a whole number"),
        ("fetch_max_wait_ms", -1, "fetch_max_wait_ms: -1 is below 0"),
        ("max_poll_records", 0, "max_poll_records: 0 is below 1"),
        ("auto_offset_reset", "first", "auto_offset_reset: 'first' is not 'earliest', 'latest' or 'none'"),
        (
            "partition_assignment_strategy",
            "range",
            "partition_assignment_strategy: 'range' is a str, not a tuple of texts",
        ),
        ("check_crcs", 1, "check_crcs: 1 is an int, not True or False"),
        ("group", "g", "group is no option of ConsumerOptions; did you mean group_id?"),
    ],
)
def test_a_consumer_names_the_option_that_cannot_be(option: str, value: Any, text: str) -> None:
    """As a producer does."""
    with pytest.raises((TypeError, ValueError)) as refusal:
        Consumer(**{option: value})
    assert str(refusal.value).startswith(text)


def test_what_can_be_is_taken() -> None:
    """The defaults, numbers of either kind where either will do, and None where nothing is meant."""
    assert ProducerOptions(linger_ms=0, acks="1", enable_idempotence=False).linger_ms == 0  # type: ignore[arg-type]
    assert ProducerOptions(linger_ms=2.5, partitioner=lambda topic, key, count: 0).linger_ms == 2.5
    assert ConsumerOptions(group_id=None, partition_assignment_strategy=("sticky",)).group_id is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"group_protocol": "consumer", "session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000},
            "heartbeat_interval_ms, session_timeout_ms cannot be set with group_protocol='consumer'",
        ),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": ("range",)},
            "partition_assignment_strategy cannot be set with group_protocol='consumer'",
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "range"},
            "group_remote_assignor cannot be set with group_protocol='classic'",
        ),
        (
            {"session_timeout_ms": 6_000, "group_remote_assignor": "range"},
            "group_remote_assignor cannot be set together with session_timeout_ms",
        ),
        ({"group_protocol": "new"}, "group_protocol: 'new' is not 'auto', 'consumer' or 'classic'"),
    ],
)
def test_options_of_the_other_group_protocol_are_refused_by_name(given: dict[str, Any], text: str) -> None:
    """Also where they say what is the default."""
    with pytest.raises(ValueError, match=re.escape(text)):
        Consumer(group_id="g", **given)


def test_an_option_that_only_the_classic_protocol_has_chooses_it() -> None:
    """Nothing else does."""
    assert Consumer(group_id="g").options.group_protocol == "auto"
    assert Consumer(group_id="g", heartbeat_interval_ms=3_000).options.group_protocol == "classic"
    assert Consumer(group_id="g", group_remote_assignor="range").options.group_protocol == "auto"
