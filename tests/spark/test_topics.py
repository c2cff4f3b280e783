"""Topics as typed DataFrames: every Avro type, several writers, and whatever is no event."""

import datetime as dt
import decimal
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F
from tests.spark.conftest import framed
from tests.support.patience import patient

from busway.security.properties import BadProperties
from busway_spark import NoColumns, NoSchema, NotServed, explain, read_topic, rejected
from busway_spark.source import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

NESTED = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "double"]}],
}
TYPES: dict[str, tuple[Any, Any, Any]] = {
    # name: (schema, value as fastavro writes it, value as Spark gives it)
    "flag": ("boolean", True, True),
    "small": ("int", -(2**31), -(2**31)),
    "large": ("long", 2**63 - 1, 2**63 - 1),
    "single": ("float", 0.5, 0.5),
    "double": ("double", -1e300, -1e300),
    "raw": ("bytes", b"\x00\xff", b"\x00\xff"),
    "text": ("string", "zażółć", "zażółć"),
    "four": ({"type": "fixed", "name": "Four", "size": 4}, b"abcd", b"abcd"),
    "suit": ({"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}, "SPADES", "SPADES"),
    "numbers": ({"type": "array", "items": ["null", "int"]}, [1, None, 3], [1, None, 3]),
    "counts": ({"type": "map", "values": "long"}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    "maybe": (["null", "string"], None, None),
    "other_way": (["string", "null"], "x", "x"),
    "wide": (["int", "long"], 2**40, 2**40),
    "wide_float": (["null", "float", "double"], 0.25, 0.25),
    "point": (NESTED, {"x": 1, "y": None}, (1, None)),
    "points": ({"type": "array", "items": "Point"}, [{"x": 1, "y": 2.0}], [(1, 2.0)]),
    "by_name": (
        {"type": "map", "values": ["null", "Point"]},
        {"a": {"x": 3, "y": 0.5}, "b": None},
        {"a": (3, 0.5), "b": None},
    ),
    "day": ({"type": "int", "logicalType": "date"}, dt.date(2026, 2, 3), dt.date(2026, 2, 3)),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        dt.datetime(2026, 2, 3, 4, 5, 6, 789000, dt.UTC),
        dt.datetime(2026, 2, 3, 4, 5, 6, 789000),
    ),
    "micros": (
        ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        dt.datetime(1969, 2, 3, 4, 5, 6, 789123, dt.UTC),
        dt.datetime(1969, 2, 3, 4, 5, 6, 789123),
    ),
    "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, 1_770_000_000_123_456_789, 1_770_000_000_123_456_789),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        dt.datetime(2026, 2, 3, 4, 5, 6, 7),
        dt.datetime(2026, 2, 3, 4, 5, 6, 7),
    ),
    "time_millis": ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3, 4000), 3_723_004),
    "money": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        decimal.Decimal("-1234567.89"),
        decimal.Decimal("-1234567.89"),
    ),
    "fixed_money": (
        {"type": "fixed", "name": "Money", "size": 8, "logicalType": "decimal", "precision": 12, "scale": 3},
        decimal.Decimal("1.500"),
        decimal.Decimal("1.500"),
    ),
    "id": (
        {"type": "string", "logicalType": "uuid"},
        uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
        "01234567-89ab-cdef-0123-456789abcdef",
    ),
    "span": (
        {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"},
        b"123456789012",
        b"123456789012",
    ),
    "nothing": ("null", None, None),
}
EVERY = {
    "type": "record",
    "name": "Every",
    "namespace": "types",
    "fields": [{"name": name, "type": schema} for name, (schema, _, _) in TYPES.items()],
}


def plain(value: Any) -> Any:
    """Rows and byte arrays as tuples and bytes."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("decoder", ["jvm", "python"])
def test_every_type_comes_out_as_it_was_written(bus: Any, spark: Any, decoder: str) -> None:
    """A record of every Avro type, written by fastavro, by both decoders."""
    bus.topic("t")
    schema_id = bus.register("t-value", EVERY)
    bus.send("t", [(None, framed(schema_id, EVERY, {name: value for name, (_, value, _) in TYPES.items()}))])
    frame = read_topic(spark, "t", decoder=decoder, **bus.servers)
    row = frame.select("event.*", "error").collect()[0].asDict()
    assert row.pop("error") is None
    # A timestamp with a zone is collected in the zone of this process, which is the session's in the test of its type only.
    for name in ("millis", "micros"):
        row[name] = row[name].astimezone(dt.UTC).replace(tzinfo=None)
    assert {name: plain(value) for name, value in row.items()} == {name: value for name, (_, _, value) in TYPES.items()}


def test_both_decoders_agree_on_types(bus: Any, spark: Any) -> None:
    """The column types are the same, so jobs do not depend on the decoder."""
    bus.topic("t")
    bus.register("t-value", EVERY)
    frames = [read_topic(spark, "t", decoder=decoder, **bus.servers) for decoder in ("jvm", "python")]
    assert frames[0].schema.simpleString() == frames[1].schema.simpleString()


def test_unions_of_several_types(bus: Any, spark: Any) -> None:
    """The JVM's decoder gives a struct of members; the one in Python says that it cannot."""
    schema = {"type": "record", "name": "U", "fields": [{"name": "u", "type": ["null", "string", "int", NESTED]}]}
    bus.topic("t")
    schema_id = bus.register("t-value", schema)
    values = ["a", 5, {"x": 1, "y": None}, None]
    bus.send("t", [(None, framed(schema_id, schema, {"u": value})) for value in values])
    rows = read_topic(spark, "t", **bus.servers).orderBy("offset").select("event.u").collect()
    assert [plain(row.u) for row in rows] == [("a", None, None), (None, 5, None), (None, None, (1, None)), None]
    with pytest.raises(NoColumns, match="several types"):
        read_topic(spark, "t", decoder="python", **bus.servers)


def test_a_record_whose_fields_are_all_null_is_no_damage(bus: Any, spark: Any) -> None:
    """All-null events are distinguished from damaged bodies, of writers with fewer and more fields than the reader."""
    narrow = {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "int"], "default": None}]}
    wide = {**narrow, "fields": [*narrow["fields"], {"name": "b", "type": ["null", "string"], "default": None}]}
    bus.topic("t")
    first, second = bus.register("t-value", narrow), bus.register("t-value", wide)
    bodies = [framed(first, narrow, {"a": None}), framed(second, wide, {"a": None, "b": None})]
    damaged = [
        struct.pack(">bI", 0, second),
        struct.pack(">bI", 0, second) + b"\x08",
        framed(second, wide, {"a": None, "b": "xy"})[:-1],
    ]
    bus.send("t", [(None, value) for value in bodies + damaged])
    for decoder in ("jvm", "python"):
        for reader in (None, 1):
            rows = read_topic(spark, "t", reader=reader, decoder=decoder, **bus.servers).orderBy("offset").collect()
            reasons = [row.error for row in rows]
            assert reasons[:2] == [None, None]
            assert all(reason.startswith("damaged") for reason in reasons[2:4]), (decoder, reader, reasons)
            assert all(tuple(row.event) == (None,) * (reader or 2) for row in rows[:2])


@pytest.mark.parametrize("source", ["kafka", "busway"])
@pytest.mark.parametrize("decoder", ["jvm", "python"])
def test_what_is_no_event_is_kept_with_the_reason(bus: Any, spark: Any, source: str, decoder: str) -> None:
    """An unknown id, a damaged body, an unframed value, another record type and another format each have a reason; a tombstone is a delete."""
    schema = {"type": "record", "name": "Seen", "fields": [{"name": "user", "type": "long"}]}
    other = {"type": "record", "name": "Left", "fields": [{"name": "user", "type": "long"}]}
    bus.topic("t")
    other_id = bus.register("t-value", other)
    text_id = bus.register("t-value", '"string"')
    schema_id = bus.register("t-value", schema)
    values = [
        framed(schema_id, schema, {"user": 1}),
        framed(other_id, other, {"user": 2}),
        framed(text_id, "string", "x"),
        struct.pack(">bI", 0, 2**31 + 5) + b"\x02",
        struct.pack(">bI", 0, schema_id) + b"\xff\xff",
        b"\x01abcdef",
        b"",
        None,
    ]
    bus.send("t", [(b"k", value) for value in values])
    frame = read_topic(spark, "t", source=source, decoder=decoder, **bus.servers)
    rows = frame.orderBy("offset").collect()
    assert [row.error for row in rows] == [
        None,
        "another record type: Left, version 1 of t-value",
        "version 2 of t-value is no Avro record",
        "schema id 2147483653 is no version of t-value that is known",
        f"damaged: the body does not fit schema id {schema_id}",
        *["not framed: expected a zero byte and a schema id of four bytes"] * 2,
        None,
    ]
    assert [row.event and row.event.user for row in rows] == [1, *[None] * 7]
    assert [row.deleted for row in rows] == [False] * 7 + [True]
    assert rejected(frame).count() == 6
    failing = read_topic(spark, "t", source=source, decoder=decoder, on_error="fail", **bus.servers).select(
        "event.user"
    )
    with pytest.raises(Exception, match="another record type") as failed:
        failing.collect()
    assert explain(failed.value).endswith("version 1 of t-value in t partition 0 offset 1")


def test_a_subject_of_another_naming_and_an_event_class_as_reader(bus: Any, spark: Any) -> None:
    """The record type that was another one is read by its own subject; a class picks the columns."""
    from dataclasses import dataclass

    @dataclass
    class Left:
        user: int
        why: str = "unknown"

    schema = {"type": "record", "name": "Left", "fields": [{"name": "user", "type": "long"}]}
    bus.topic("t")
    schema_id = bus.register("t-Left", schema)
    bus.send("t", [(None, framed(schema_id, schema, {"user": 2}))])
    row = read_topic(spark, "t", subject="t-Left", reader=Left, **bus.servers).select("event.*").collect()[0]
    assert row.asDict() == {"user": 2, "why": "unknown"}


def test_options_of_sparks_own_source_reach_it_and_are_refused_for_ours(bus: Any, spark: Any) -> None:
    """Under Kafka's names; ours refuses those that are not about security, and security that it lacks."""
    schema = {"type": "record", "name": "Seen", "fields": [{"name": "user", "type": "long"}]}
    bus.topic("t")
    schema_id = bus.register("t-value", schema)
    bus.send("t", [(None, framed(schema_id, schema, {"user": 2}))])
    plain = {"kafka.security.protocol": "PLAINTEXT", "kafka.client.id": "ours"}
    assert read_topic(spark, "t", kafka_options=plain, **bus.servers).select("event.user").collect()[0].user == 2
    nonsense = read_topic(spark, "t", kafka_options={"kafka.security.protocol": "CARRIER_PIGEON"}, **bus.servers)
    with pytest.raises(Py4JJavaError) as refused:
        nonsense.collect()
    assert explain(refused.value).startswith("Invalid value CARRIER_PIGEON for configuration security.protocol")
    with pytest.raises(NotServed, match=r"kafka\.client\.id: options of Spark's Kafka source"):
        read_topic(spark, "t", source="busway", kafka_options={"kafka.client.id": "ours"}, **bus.servers)
    kerberos = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
    with pytest.raises(BadProperties, match="sasl_mechanism: 'GSSAPI' is not"):
        Settings.of({**kerberos, "kafka.bootstrap.servers": "b", "subscribe": "t"}, default_start="earliest")


def test_references_are_put_in_place(bus: Any, spark: Any) -> None:
    """A schema that names types of other subjects, one of which names a third."""
    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
    place = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "city", "type": "City"}]}
    trip = {
        "type": "record",
        "name": "Trip",
        "fields": [{"name": "a", "type": "geo.Place"}, {"name": "b", "type": ["null", "geo.Place"]}],
    }
    bus.topic("t")
    bus.register("city", city)
    bus.register("place", place, [{"name": "geo.City", "subject": "city", "version": 1}])
    schema_id = bus.register("t-value", trip, [{"name": "geo.Place", "subject": "place", "version": 1}])
    whole = {
        **trip,
        "fields": [{"name": "a", "type": {**place, "fields": [{"name": "city", "type": city}]}}, trip["fields"][1]],
    }
    value = {"a": {"city": {"name": "Oslo"}}, "b": {"city": {"name": "Rome"}}}
    bus.send("t", [(None, framed(schema_id, whole, value))])
    row = (
        read_topic(spark, "t", **bus.servers)
        .select("event.a.city.name", F.col("event.b.city.name").alias("b"))
        .collect()[0]
    )
    assert tuple(row) == ("Oslo", "Rome")


def test_what_cannot_become_columns_is_refused(bus: Any, spark: Any) -> None:
    """No schema, a schema that is no record, one that refers to itself, and a version that is not there."""
    bus.topic("t")
    with pytest.raises(NoSchema, match="no subject t-value"):
        read_topic(spark, "t", **bus.servers)
    bus.register("t-value", '"string"')
    with pytest.raises(NoColumns, match='only a record can become columns, the schema of t-value is "string"'):
        read_topic(spark, "t", **bus.servers)
    children = {"name": "children", "type": {"type": "array", "items": "Tree"}}
    bus.register("t-value", {"type": "record", "name": "Tree", "fields": [children]})
    with pytest.raises(NoColumns, match="refers to itself"):
        read_topic(spark, "t", **bus.servers)
    with pytest.raises(NoSchema, match="has no version 9; it has 1, 2"):
        read_topic(spark, "t", reader=9, **bus.servers)


def test_start_and_end(bus: Any, spark: Any) -> None:
    """By offsets and by moments, with a time zone that is not UTC."""
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
    bus.topic("t")
    schema_id = bus.register("t-value", schema)
    begin = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    at = int(begin.timestamp() * 1000)
    bus.send(
        "t",
        [
            (None, framed(schema_id, schema, {"n": number}), {"timestamp_ms": at + number * 1000})
            for number in range(10)
        ],
    )
    ranges: list[tuple[Any, Any, list[int]]] = [
        ({0: 3}, {0: 6}, [3, 4, 5]),
        (begin + dt.timedelta(seconds=2), begin + dt.timedelta(seconds=4), [2, 3]),
        (begin + dt.timedelta(seconds=8), "latest", [8, 9]),
        (begin + dt.timedelta(days=1), "latest", []),
    ]
    for start, end, expected in ranges:
        for source in ("kafka", "busway"):
            rows = (
                read_topic(spark, "t", start=start, end=end, source=source, **bus.servers).select("event.n").collect()
            )
            assert sorted(row.n for row in rows) == expected, (start, source)


def test_without_a_jar(bus: Any, tmp_path: Path) -> None:
    """A session without jars reads and decodes, all in Python; writing says what it needs."""
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
    bus.topic("t")
    schema_id = bus.register("t-value", schema)
    bus.send("t", [(None, framed(schema_id, schema, {"n": number})) for number in range(10)])
    program = tmp_path / "program.py"
    program.write_text(
        "from busway_spark import read_topic, write_topic\n"
        "from busway_spark.session import session\n"
        "spark = session('no jars', jars=False)\n"
        f"servers = {bus.servers!r}\n"
        "frame = read_topic(spark, 't', **servers)\n"
        "print('sum', frame.agg({'event.n': 'sum'}).collect()[0][0])\n"
        "try:\n    write_topic(frame.select('event.n'), 't', **servers)\n"
        "except Exception as problem:\n    print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert "sum 45" in done.stdout, done.stderr
    assert "writing needs Spark's Kafka and Avro artifacts" in done.stdout
