"""The transforms, on values with and without schemas."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from busway_connect.connector import ConfigInvalid, SinkRecord
from busway_connect.plugins import Plugins
from busway_connect.schema import Field, Schema
from busway_connect.transforms.chain import chain
from busway_connect.transforms.fields import InsertField, InsertKeyField, RegexRouter, ReplaceField
from busway_connect.transforms.interface import Transform, TransformFailed
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
    return [schema_field.name for schema_field in schema.fields]


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
    assert {schema_field.name: schema_field.schema.optional for schema_field in made.value_schema.fields[1:]} == {
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
    """Reported when the connector is made."""
    with pytest.raises(ValueError, match=says):
        kind(settings)


def test_a_record_that_is_no_struct_is_told() -> None:
    """With what it is."""
    with pytest.raises(TransformFailed, match="not on str"):
        ReplaceField({"exclude": "a"}).apply(record("text"))


PREDICATES = {
    "predicates": "gone, routed, changes",
    "predicates.gone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "predicates.routed.type": "HasHeaderKey",
    "predicates.routed.name": "route",
    "predicates.changes.type": "TopicNameMatches",
    "predicates.changes.pattern": r"shop\..*",
}


def through(transforms: Sequence[Transform], record: SinkRecord) -> SinkRecord | None:
    """What a chain makes of a record."""
    made: SinkRecord | None = record
    for transform in transforms:
        made = None if made is None else transform.apply(made)
    return made


def test_a_transform_is_for_the_records_that_its_predicate_takes() -> None:
    """KIP-585: tombstones filtered, what has a header routed, and with `negate` the others changed."""
    transforms = chain(
        Plugins(),
        {
            **PREDICATES,
            "transforms": "drop,route,note",
            "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.drop.predicate": "gone",
            "transforms.route.type": "RegexRouter",
            "transforms.route.regex": ".*",
            "transforms.route.replacement": "elsewhere",
            "transforms.route.predicate": "routed",
            "transforms.note.type": "InsertField$Value",
            "transforms.note.static.field": "note",
            "transforms.note.static.value": "other",
            "transforms.note.predicate": "changes",
            "transforms.note.negate": "true",
        },
    )
    assert through(transforms, record(None)) is None
    plain = record({"id": 1})
    assert through(transforms, plain) == plain
    routed = through(transforms, dataclasses.replace(plain, headers=(("route", b"x"),)))
    assert routed is not None
    assert (routed.topic, routed.value) == ("elsewhere", {"id": 1, "note": "other"})
    assert transforms[2].shown == "InsertField"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"transforms.drop.predicate": "unknown"}, "transforms.drop.predicate"),
        ({"transforms.drop.negate": "true"}, "transforms.drop.negate"),
        ({"transforms.drop.predicate": "gone", "transforms.drop.negate": "maybe"}, "transforms.drop.negate"),
        ({"predicates.gone.type": "No.Such"}, "predicates.gone.type"),
        ({"predicates.gone.type": ""}, "predicates.gone.type"),
        ({"predicates.changes.pattern": "("}, "predicates.changes.type"),
        ({"predicates.routed.name": ""}, "predicates.routed.type"),
        ({"transforms.drop.type": ""}, "transforms.drop.type"),
    ],
)
def test_predicates_that_cannot_be_are_named(settings: dict[str, str], named: str) -> None:
    """By the setting that is at fault."""
    config = {**PREDICATES, "transforms": "drop", "transforms.drop.type": "Filter", **settings}
    with pytest.raises(ConfigInvalid) as refused:
        chain(Plugins(), config)
    assert list(refused.value.errors) == [named]


def test_a_setting_that_a_transform_does_not_know_is_refused() -> None:
    """Such as one of an older Debezium, whose absence would change what becomes of deletes."""
    config = {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.handling.mode": "rewrite",
    }
    with pytest.raises(ConfigInvalid, match=r"transforms\.unwrap\.delete\.handling\.mode: it is not served"):
        chain(Plugins(), config)
