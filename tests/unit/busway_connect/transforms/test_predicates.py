"""Kafka Connect's predicates (KIP-585), and `Filter` under them."""

from types import SimpleNamespace
from typing import Any

import pytest

from busway_connect.transforms.interface import TransformFailed
from busway_connect.transforms.predicates import (
    ConditionalTransform,
    Filter,
    HasHeaderKey,
    RecordIsTombstone,
    TopicNameMatches,
)


def record(**changes: Any) -> Any:
    """A sink's record of topic `orders`."""
    values: dict[str, Any] = {"topic": "orders", "value": {"a": 1}, "headers": (("trace", b"1"),)}
    return SimpleNamespace(**{**values, **changes})


def test_predicates() -> None:
    """Of the whole topic's name, a header's name, and a missing value."""
    assert TopicNameMatches({"pattern": "ord.*"}).test(record())
    assert not TopicNameMatches({"pattern": "ord"}).test(record())
    assert HasHeaderKey({"name": "trace"}).test(record())
    assert not HasHeaderKey({"name": "Trace"}).test(record())
    assert RecordIsTombstone({}).test(record(value=None))
    assert not RecordIsTombstone({}).test(record(value=""))


def test_bad_patterns_are_refused_by_the_settings_name() -> None:
    """When it is set, or when a name takes too long."""
    with pytest.raises(ValueError, match="pattern: Invalid regex"):
        TopicNameMatches({"pattern": "("})
    with pytest.raises(TransformFailed, match=r"pattern: .* takes longer"):
        TopicNameMatches({"pattern": r"(a|aa)+"}).test(record(topic="a" * 200 + "b"))


@pytest.mark.parametrize("negate", [False, True])
def test_a_filter_drops_selected_records(negate: bool) -> None:
    """`negate` selects the others; the rest pass unchanged."""
    under = ConditionalTransform(Filter({}), RecordIsTombstone({}), negate=negate)
    tombstone, other = record(value=None), record()
    assert under.apply(tombstone) is (tombstone if negate else None)
    assert under.apply(other) is (None if negate else other)
