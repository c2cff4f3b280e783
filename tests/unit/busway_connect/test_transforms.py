"""The transforms, on values with and without schemas."""

from typing import Any

import pytest

from busway_connect.connector import SinkRecord
from busway_connect.schema import Field, Schema
from busway_connect.transforms.fields import InsertField, InsertKeyField, RegexRouter, ReplaceField
from busway_connect.transforms.interface import TransformFailed
from busway_connect.transforms.unwrap import ExtractNewRecordState

ROW = Schema(type="struct", name="t.Value", optional=True, fields=(Field(name="id", schema=Schema(type="int32")),))
SOURCE = Schema(type="struct", name="Source", fields=(Field(name="ts_ms", schema=Schema(type="int64")),))
ENVELOPE = Schema(
    type="struct",
    name="t.Envelope",
    fields=(
        Field(name="before", schema=ROW),
        Field(name="after", schema=ROW),
        Field(name="source", schema=SOURCE),
        Field(name="op", schema=Schema(type="string")),
    ),
)


def record(value: Any, schema: Schema | None = None, key: Any = None) -> SinkRecord:
    """A record of `shop.orders`."""
    return SinkRecord(topic="shop.orders", partition=3, offset=9, timestamp_ms=77, key=key, key_schema=None, value=value, value_schema=schema)  # fmt: skip


def change(op: str, before: Any, after: Any) -> SinkRecord:
    """An envelope."""
    return record({"before": before, "after": after, "source": {"ts_ms": 5}, "op": op}, ENVELOPE)


def names(schema: Schema | None) -> list[str]:
    """The members of a struct."""
    assert schema is not None
    return [one.name for one in schema.fields]


def test_unwrap_takes_the_row_after_the_change() -> None:
    """With what is asked for from the envelope beside it."""
    made = ExtractNewRecordState({"add.fields": "op,source.ts_ms"}).apply(change("c", None, {"id": 1}))
    assert made is not None
    assert made.value == {"id": 1, "__op": "c", "__source_ts_ms": 5}
    assert names(made.value_schema) == ["id", "__op", "__source_ts_ms"]
    assert made.value_schema is not None
    assert not made.value_schema.optional


@pytest.mark.parametrize(
    ("mode", "deleted", "tombstone"),
    [
        ("drop", "nothing", "nothing"),
        ("tombstone", "nothing", None),
        ("delete-to-tombstone", None, "nothing"),
        ("rewrite", {"id": 1, "__deleted": "true"}, "nothing"),
        ("rewrite-with-tombstone", {"id": 1, "__deleted": "true"}, None),
    ],
)
def test_unwrap_of_a_delete(mode: str, deleted: Any, tombstone: Any) -> None:
    """Each mode's answer to the delete and to the tombstone behind it."""
    transform = ExtractNewRecordState({"delete.tombstone.handling.mode": mode})
    for given, wanted in ((change("d", {"id": 1}, None), deleted), (record(None), tombstone)):
        made = transform.apply(given)
        assert (made.value if made is not None else "nothing") == wanted


def test_unwrap_leaves_other_records_alone() -> None:
    """A value that is no envelope."""
    given = record({"id": 1})
    assert ExtractNewRecordState({}).apply(given) is given


def test_the_changed_schema_is_made_once() -> None:
    """Converters keep what they worked out by schema object."""
    transform = ReplaceField({"renames": "id:number"})
    first, second = (transform.apply(record({"id": 1}, ROW)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.value_schema is second.value_schema
    assert (first.value, names(first.value_schema)) == ({"number": 1}, ["number"])


def test_fields_are_left_out_or_kept() -> None:
    """`exclude` and `include`."""
    given = record({"a": 1, "b": 2, "c": 3})
    left, kept = ReplaceField({"exclude": "a"}).apply(given), ReplaceField({"include": "a,b"}).apply(given)
    assert left is not None
    assert kept is not None
    assert (left.value, kept.value) == ({"b": 2, "c": 3}, {"a": 1, "b": 2})


def test_what_is_known_of_a_record_is_inserted() -> None:
    """Topic, partition, offset, timestamp and something fixed; `!` makes it required."""
    settings = {
        "topic.field": "t",
        "partition.field": "p",
        "offset.field": "o!",
        "timestamp.field": "at",
        "static.field": "s",
        "static.value": "x",
    }
    made = InsertField(settings).apply(record({"id": 1}, ROW))
    assert made is not None
    assert made.value == {"id": 1, "t": "shop.orders", "p": 3, "o": 9, "at": 77, "s": "x"}
    assert made.value_schema is not None
    assert {one.name: one.schema.optional for one in made.value_schema.fields[1:]} == {
        "t": True,
        "p": True,
        "o": False,
        "at": True,
        "s": True,
    }
    keyed = InsertKeyField({"topic.field": "t"}).apply(record({"id": 1}, key={"k": 1}))
    assert keyed is not None
    assert keyed.key == {"k": 1, "t": "shop.orders"}


def test_topics_are_routed_by_their_whole_name() -> None:
    """`$1` is the first group; a part of a name is no match."""
    router = RegexRouter({"regex": r"shop\.(.*)", "replacement": "all-$1"})
    made = router.apply(record(1))
    assert made is not None
    assert made.topic == "all-orders"
    other = RegexRouter({"regex": "shop", "replacement": "x"}).apply(record(1))
    assert other is not None
    assert other.topic == "shop.orders"


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (RegexRouter, {"regex": "a"}, "replacement is missing"),
        (RegexRouter, {"regex": "(", "replacement": "x"}, "regex: "),
        (ReplaceField, {"renames": "a"}, "is not old:new"),
        (InsertField, {}, "No field insertion configured"),
        (InsertField, {"static.field": "a"}, "No value specified for static field"),
        (ExtractNewRecordState, {"delete.tombstone.handling.mode": "x"}, "is one of tombstone, drop"),
    ],
)
def test_settings_that_cannot_be(kind: Any, settings: dict[str, str], says: str) -> None:
    """Told when the connector is made."""
    with pytest.raises(ValueError, match=says):
        kind(settings)


def test_a_record_that_is_no_struct_is_told() -> None:
    """With what it is."""
    with pytest.raises(TransformFailed, match="not on str"):
        ReplaceField({"exclude": "a"}).apply(record("text"))
