"""Many writers in one topic: each record is read as it would be with its own schema alone."""

import json
import random
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from tests.spark.conftest import framed
from tests.support.seeds import seed

from busway_spark import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
SUIT = {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
CITY = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
TOWN = {**CITY, "name": "Town"}
READER = {
    "type": "record",
    "name": "Ride",
    "namespace": "shop",
    "aliases": ["Trip"],
    "fields": [
        {"name": "ride", "type": "long"},
        {"name": "suit", "type": {**SUIT, "symbols": ["SPADES", "HEARTS", "OTHER"], "default": "OTHER"}},
        {"name": "four", "type": ["null", FOUR], "default": None},
        {"name": "place", "type": ["null", TOWN, CITY], "default": None},
        {"name": "other", "type": ["null", "geo.City"], "default": None},
        {"name": "named", "type": "string", "aliases": ["called"], "default": "nobody"},
        {"name": "also", "type": {"type": "array", "items": "Suit"}, "default": []},
    ],
}


def writer(name: str, fields: list[dict[str, Any]], namespace: str = "shop") -> dict[str, Any]:
    """A record as some service wrote it."""
    return {"type": "record", "name": name, "namespace": namespace, "doc": "written", "fields": fields}


def field(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    """One of its fields."""
    return {"name": name, "type": schema, **more}


BASE = [field("ride", "int"), field("suit", SUIT)]
TREE = writer("Tree", [field("below", ["null", "Tree"], default=None)])
WRITERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # Each defines types that others define differently; a value goes with it.
    (writer("Ride", BASE), {"ride": 1, "suit": "SPADES"}),
    (writer("Ride", [*BASE[::-1], field("four", FOUR)]), {"ride": 2, "suit": "HEARTS", "four": b"abcd"}),
    (
        writer("Ride", [field("ride", "long"), field("suit", {**SUIT, "symbols": ["CLUBS", "SPADES"]})]),
        {"ride": 3, "suit": "CLUBS"},
    ),
    (writer("Ride", [*BASE, field("place", CITY)]), {"ride": 4, "suit": "SPADES", "place": {"name": "Oslo"}}),
    (
        writer("Ride", [*BASE, field("place", ["null", CITY, TOWN]), field("other", "geo.City")]),
        {"ride": 5, "suit": "SPADES", "place": ("geo.Town", {"name": "Bath"}), "other": {"name": "Rome"}},
    ),
    (writer("Trip", [*BASE, field("called", "string")]), {"ride": 6, "suit": "HEARTS", "called": "by alias"}),
    (writer("Ride", [*BASE, field("called", "string")], "elsewhere"), {"ride": 7, "suit": "HEARTS", "called": "x"}),
    (
        writer("Ride", [*BASE, field("also", {"type": "array", "items": "Suit"})]),
        {"ride": 8, "suit": "HEARTS", "also": ["SPADES", "HEARTS"]},
    ),
    (writer("Ride", [*BASE, field("gone", ["null", TREE])]), {"ride": 9, "suit": "SPADES", "gone": {"below": {}}}),
    (writer("Ride", [field("suit", SUIT)]), {"suit": "SPADES"}),  # lacks what the reader requires
    (writer("Ride", [field("ride", "string"), field("suit", SUIT)]), {"ride": "11", "suit": "SPADES"}),  # no promotion
]
PLENTY = 30


def alone(spark: Any, schema: Any, values: list[bytes]) -> list[dict[str, Any] | None]:
    """The values of one writer as `from_avro` gives them; None for a damaged one, which a field with a default tells from one that is all null."""
    reader = json.dumps({**READER, "fields": [*READER["fields"], field("there", "boolean", default=True)]})
    frame = spark.createDataFrame(
        [(number, bytearray(value)) for number, value in enumerate(values)], "n int, value binary"
    )
    body = F.substring("value", 6, 10_000)
    event = from_avro(body, json.dumps(schema), {"avroSchema": reader, "mode": "PERMISSIVE"}).alias("event")
    events_read = [row.event.asDict(recursive=True) for row in frame.orderBy("n").select(event).collect()]
    return [event_read if event_read.pop("there") else None for event_read in events_read]


def test_each_record_is_read_as_with_its_own_schema_alone(bus: Any, spark: Any) -> None:
    """Enums, fixed types, unions of records, names, aliases and defaults of each writer resolve as `from_avro` resolves them for one; and
    so do records of many more writers, damaged ones among them."""
    chance = random.Random(seed(1))
    written = list(WRITERS)
    for number in range(PLENTY):
        extra = field(f"extra_{number}", ["null", "string"], default=None)
        written.append((writer("Ride", [*BASE, extra]), {"ride": 100 + number, "suit": "SPADES"}))
    bus.topic("t")
    ids = [bus.register("t-value", schema) for schema, _ in written]
    bus.register("t-value", READER)
    records = [
        (schema_id, framed(schema_id, schema, value)) for schema_id, (schema, value) in zip(ids, written, strict=True)
    ]
    records += [(schema_id, value[: chance.randrange(5, len(value))]) for schema_id, value in records]
    chance.shuffle(records)
    bus.send("t", [(None, value) for _, value in records])
    rows = read_topic(spark, "t", **bus.servers).orderBy("offset").select("schema_id", "event", "error").collect()
    assert [row.schema_id for row in rows] == [schema_id for schema_id, _ in records]
    assert [row.event is None for row in rows] == [row.error is not None for row in rows]
    events_by_id: dict[int, list[Any]] = {schema_id: [] for schema_id in ids}
    values: dict[int, list[bytes]] = {schema_id: [] for schema_id in ids}
    for row, (schema_id, value) in zip(rows, records, strict=True):
        events_by_id[schema_id].append(row.event and row.event.asDict(recursive=True))
        values[schema_id].append(value)
    for schema_id, (schema, _) in list(zip(ids, written, strict=True))[: len(WRITERS) + 1]:
        assert events_by_id[schema_id] == alone(spark, schema, values[schema_id]), schema
    good = {event["ride"] for events in events_by_id.values() for event in events if event is not None}
    assert good >= {*range(1, 10), *range(100, 100 + PLENTY)}
    assert (
        events_by_id[ids[9]] == events_by_id[ids[10]] == [None, None]
    )  # what no reader can make of them is reported as damage
