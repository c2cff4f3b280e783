"""The SQL sink on SQLite: every insert mode and key mode, envelopes, deletes, new columns, refused records."""

import datetime as dt
import decimal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from busway_connect.connector import ConfigInvalid, RecordRefused, SinkRecord
from busway_connect.decimals import decimal_to_bytes
from busway_connect.schema import Field, Schema, Type
from busway_connect.sql_sink import JdbcSink

Make = Callable[..., Any]


def record(
    value: Any, schema: Schema | None = None, *, key: Any = None, key_schema: Schema | None = None, offset: int = 0
) -> SinkRecord:
    """A record of the topic `shop.orders`."""
    return SinkRecord(
        topic="shop.orders", partition=0, offset=offset, timestamp_ms=0, key=key, key_schema=key_schema, value=value, value_schema=schema
    )  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A fresh SQLite file."""
    return f"sqlite:///{tmp_path / 'sink.db'}"


@pytest.fixture
async def make(url: str) -> AsyncIterator[Make]:
    """Makes sinks that have started; `_` in names stands for a dot."""
    made = []

    async def start(**config: str) -> JdbcSink:
        settings = {
            "connection.url": url,
            "schema.evolution": "basic",
            **{key.replace("_", "."): each for key, each in config.items()},
        }
        assert JdbcSink.validate(settings) == {}
        sink = JdbcSink("sink", settings)
        await sink.start()
        made.append(sink)
        return sink

    yield start
    for sink in made:
        await sink.stop()


def rows(url: str, sql: str = "SELECT * FROM shop_orders ORDER BY 1") -> list[dict[str, Any]]:
    """What is in the database."""
    engine: Engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(sql)).mappings()]
    finally:
        engine.dispose()


def run_sql(url: str, sql: str) -> None:
    """Change the database from outside."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(sql))
    engine.dispose()


UPSERT = {"insert_mode": "upsert", "primary_key_mode": "record_value", "primary_key_fields": "id"}


async def test_upsert_writes_the_newest_row_and_may_be_repeated(make: Make, url: str) -> None:
    """Two values of one key in a batch, the batch twice: one row, the later value."""
    sink = await make(**UPSERT)
    batch = [record({"id": 1, "total": 5}), record({"id": 2, "total": 7}), record({"id": 1, "total": 6})]
    await sink.write(batch)
    await sink.write(batch)
    assert rows(url) == [{"id": 1, "total": 6}, {"id": 2, "total": 7}]


async def test_insert_with_the_place_in_the_topic_as_key_may_be_repeated(make: Make, url: str) -> None:
    """`primary.key.mode=kafka`: each record is a row, also when it comes again after a crash."""
    sink = await make(primary_key_mode="kafka")
    batch = [record({"total": 5}, offset=0), record({"total": 5}, offset=1)]
    await sink.write(batch)
    await sink.write(batch)
    assert [(row["__connect_topic"], row["__connect_offset"], row["total"]) for row in rows(url)] == [
        ("shop.orders", 0, 5),
        ("shop.orders", 1, 5),
    ]


async def test_insert_without_a_key_appends(make: Make, url: str) -> None:
    """`primary.key.mode=none`: one row for each record."""
    sink = await make()
    await sink.write([record({"total": 5}), record({"total": 5})])
    assert rows(url) == [{"total": 5}, {"total": 5}]


async def test_update_changes_rows_that_are_there_and_makes_none(make: Make, url: str) -> None:
    """`insert.mode=update`."""
    run_sql(url, "CREATE TABLE shop_orders (id INTEGER PRIMARY KEY, total INTEGER)")
    run_sql(url, "INSERT INTO shop_orders VALUES (1, 5)")
    sink = await make(insert_mode="update", primary_key_mode="record_value", primary_key_fields="id")
    await sink.write([record({"id": 1, "total": 6}), record({"id": 2, "total": 7})])
    assert rows(url) == [{"id": 1, "total": 6}]


async def test_a_tombstone_deletes_by_the_record_key(make: Make, url: str) -> None:
    """With `delete.enabled`; a primitive key has its column's name from `primary.key.fields`."""
    sink = await make(
        insert_mode="upsert", primary_key_mode="record_key", primary_key_fields="id", delete_enabled="true"
    )
    await sink.write([record({"total": 5}, key=1), record({"total": 6}, key=2), record(None, key=1)])
    assert rows(url) == [{"id": 2, "total": 6}]


async def test_a_tombstone_is_nothing_where_deletes_are_off(make: Make, url: str) -> None:
    """As the default says."""
    sink = await make(insert_mode="upsert", primary_key_mode="record_key", primary_key_fields="id")
    await sink.write([record({"total": 5}, key=1), record(None, key=1)])
    assert rows(url) == [{"id": 1, "total": 5}]


def envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    """A change as Debezium tells it."""
    return {"before": before, "after": after, "source": {"schema": "public", "table": "orders"}, "op": op}


async def test_envelopes_are_unwrapped(make: Make, url: str) -> None:
    """Create, update, read and delete of Debezium's envelope end as the row they tell of."""
    sink = await make(
        insert_mode="upsert", primary_key_mode="record_key", delete_enabled="true", collection_name_format="${source.table}"
    )  # fmt: skip
    await sink.write(
        [
            record(envelope("r", None, {"id": 1, "total": 5}), key={"id": 1}),
            record(envelope("c", None, {"id": 2, "total": 6}), key={"id": 2}),
            record(envelope("u", {"id": 1, "total": 5}, {"id": 1, "total": 9}), key={"id": 1}),
            record(envelope("d", {"id": 2, "total": 6}, None), key={"id": 2}),
            record(None, key={"id": 2}),
        ]
    )
    assert rows(url, "SELECT * FROM orders") == [{"id": 1, "total": 9}]


async def test_a_new_field_becomes_a_column(make: Make, url: str) -> None:
    """`schema.evolution=basic`; rows of before have nothing in it."""
    sink = await make(**UPSERT)
    await sink.write([record({"id": 1, "total": 5}), record({"id": 2, "total": 6, "note": "gift"})])
    assert rows(url) == [{"id": 1, "total": 5, "note": None}, {"id": 2, "total": 6, "note": "gift"}]


async def test_without_evolution_a_missing_table_or_column_is_named(make: Make, url: str) -> None:
    """The task fails with the remedy; no record is blamed."""
    sink = await make(**UPSERT, schema_evolution="none")
    with pytest.raises(
        ConfigInvalid, match=r"the table shop_orders does not exist; create it, or set schema.evolution=basic"
    ):
        await sink.write([record({"id": 1})])
    run_sql(url, "CREATE TABLE shop_orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(ConfigInvalid, match="has no column total"):
        await sink.write([record({"id": 1, "total": 5})])


async def test_a_table_without_the_key_is_named(make: Make, url: str) -> None:
    """An upsert needs a unique index on its key."""
    run_sql(url, "CREATE TABLE shop_orders (id INTEGER, total INTEGER)")
    sink = await make(**UPSERT)
    with pytest.raises(ConfigInvalid, match="no primary key or unique index on id"):
        await sink.write([record({"id": 1, "total": 5})])


async def test_the_record_that_the_database_refuses_is_told_and_those_before_are_written(make: Make, url: str) -> None:
    """A NOT NULL that is violated in the middle of a batch."""
    run_sql(url, "CREATE TABLE shop_orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)")
    sink = await make(**UPSERT)
    with pytest.raises(RecordRefused, match="NOT NULL") as refused:
        await sink.write(
            [record({"id": 1, "total": 1}), record({"id": 2, "total": None}), record({"id": 3, "total": 3})]
        )
    assert refused.value.index == 1
    assert rows(url) == [{"id": 1, "total": 1}]


@pytest.mark.parametrize(
    ("bad", "says"),
    [("text", "struct or a map"), ({"total": 1}, "key's field id"), ({"id": None}, "key's field id")],
)
async def test_a_record_that_can_be_no_row_is_told(make: Make, url: str, bad: Any, says: str) -> None:
    """No struct, or without its key."""
    sink = await make(**UPSERT)
    with pytest.raises(RecordRefused, match=says) as refused:
        await sink.write([record({"id": 1}), record(bad)])
    assert refused.value.index == 1
    assert [row["id"] for row in rows(url)] == [1]


def typed(**fields: tuple[Type, str | None, tuple[tuple[str, str], ...]]) -> Schema:
    """A struct of optional fields."""
    parts = [Field(name=name, schema=Schema(type=kind, name=named, parameters=parameters, optional=True)) for name, (kind, named, parameters) in fields.items()]  # fmt: skip
    return Schema(type="struct", fields=tuple(parts))


async def test_values_are_what_their_schemas_mean(make: Make, url: str) -> None:
    """Days, microseconds, zones and unscaled bytes arrive as dates, moments and exact numbers."""
    schema = typed(
        id=("int32", None, ()),
        day=("int32", "io.debezium.time.Date", ()),
        at=("int64", "io.debezium.time.MicroTimestamp", ()),
        zoned=("string", "io.debezium.time.ZonedTimestamp", ()),
        price=("bytes", "org.apache.kafka.connect.data.Decimal", (("scale", "2"),)),
        raw=("bytes", None, ()),
        tags=("array", None, ()),
    )
    value = {
        "id": 1,
        "day": 19_000,
        "at": 1_700_000_000_123_456,
        "zoned": "2024-01-02T03:04:05.678901Z",
        "price": decimal_to_bytes(decimal.Decimal("-1234567890123456789.05"), 2),
        "raw": b"\x00\xff",
        "tags": ["a", "b"],
    }
    sink = await make(**UPSERT)
    await sink.write([record(value, schema)])
    (row,) = rows(url)
    assert row["price"] == "-1234567890123456789.05"
    assert dt.date.fromisoformat(row["day"]) == dt.date(2022, 1, 8)
    assert row["at"].startswith("2023-11-14 22:13:20.123456")
    assert row["raw"] == b"\x00\xff"
    assert row["tags"] == '["a", "b"]'


def test_settings_that_cannot_be_are_named() -> None:
    """Each with its remedy, before anything is connected."""
    base = {"connection.url": "sqlite:///x.db"}
    cases: Sequence[tuple[dict[str, str], str]] = [
        ({"insert.mode": "merge"}, "insert.mode"),
        ({"insert.mode": "upsert"}, "primary.key.mode"),
        ({"delete.enabled": "true", "primary.key.mode": "kafka"}, "delete.enabled"),
        ({"batch.size": "none"}, "batch.size"),
        ({"primary.key.mode": "kafka", "primary.key.fields": "a,b"}, "primary.key.fields"),
        ({"connection.url": "mysql://x/y"}, "connection.url"),
        ({"connection.url": "nothing"}, "connection.url"),
    ]
    for config, name in cases:
        assert list(JdbcSink.validate({**base, **config})) == [name]
    confluent = {
        "connection.url": "jdbc:sqlite:x.db",
        "pk.mode": "record_key",
        "insert.mode": "upsert",
        "auto.create": "true",
    }
    assert JdbcSink.validate(confluent) == {}


async def test_any_name_of_a_field_is_a_column(make: Make, url: str) -> None:
    """Reserved words, blanks and what SQL or a driver reads meaning into; also in columns that come later."""
    names = ["select", "a b", "50% off", "a:b", "(x)", 'q"q', "%(id)s", "ünï", "b_id"]
    sink = await make(**UPSERT)
    await sink.write([record({"id": 1, names[0]: 0})])
    value = {"id": 1, **{name: number for number, name in enumerate(names)}}
    await sink.write([record(value), record({**value, "id": 2})])
    assert rows(url) == [value, {**value, "id": 2}]


async def test_update_finds_its_row_whatever_its_columns_are_called(make: Make, url: str) -> None:
    """A column `b_id` beside the key `id`: the row of that id changes, no other."""
    run_sql(url, "CREATE TABLE shop_orders (id INTEGER PRIMARY KEY, b_id INTEGER)")
    run_sql(url, "INSERT INTO shop_orders VALUES (1, 0), (2, 0)")
    sink = await make(insert_mode="update", primary_key_mode="record_value", primary_key_fields="id")
    await sink.write([record({"id": 1, "b_id": 2})])
    assert rows(url) == [{"id": 1, "b_id": 2}, {"id": 2, "b_id": 0}]
    run_sql(url, "ALTER TABLE shop_orders ADD COLUMN p1 INTEGER")
    await sink.stop()
    sink = await make(insert_mode="update", primary_key_mode="record_value", primary_key_fields="id")
    await sink.write([record({"id": 1, "b_id": 3})])
    assert rows(url) == [{"id": 1, "b_id": 3, "p1": None}, {"id": 2, "b_id": 0, "p1": None}]


@pytest.mark.parametrize("bad", [2**70, "\ud800", float("nan"), {"deep": "\ud800"}])
async def test_a_value_that_the_driver_cannot_take_is_a_bad_record(make: Make, url: str, bad: Any) -> None:
    """Too long a number, half a character, no number where SQLite would store nothing: reported as the record's fault."""
    sink = await make(**UPSERT)
    with pytest.raises(RecordRefused) as refused:
        await sink.write([record({"id": 1, "x": "1"}), record({"id": 2, "x": bad})])
    assert refused.value.index == 1
    assert [row["id"] for row in rows(url)] == [1]


async def test_a_time_beyond_the_day_is_refused_instead_of_bent(make: Make, url: str) -> None:
    """PostgreSQL's 24:00 has no place in the column, and midnight is not what was meant."""
    sink = await make(**UPSERT)
    schema = typed(id=("int32", None, ()), at=("int64", "io.debezium.time.MicroTime", ()))
    with pytest.raises(RecordRefused, match="86400000000"):
        await sink.write(
            [record({"id": 1, "at": 86_399_999_999}, schema), record({"id": 2, "at": 86_400_000_000}, schema)]
        )
    assert [row["id"] for row in rows(url)] == [1]


async def test_what_an_update_left_as_it_was_stays(make: Make, url: str) -> None:
    """Debezium's placeholder for a TOASTed value that the log does not hold never overwrites the value that is there."""
    fields = {"id": Schema(type="int32"), "body": Schema(type="string", optional=True), "raw": Schema(type="bytes"),
              "tags": Schema(type="array", value_schema=Schema(type="string")), "total": Schema(type="int32")}  # fmt: skip
    schema = Schema(type="struct", fields=tuple(Field(name=name, schema=schema) for name, schema in fields.items()))
    sink = await make(**UPSERT)
    mark = "__debezium_unavailable_value"
    first = {"id": 1, "body": "long", "raw": b"\x01", "tags": ["a"], "total": 5}
    await sink.write(
        [
            record(first, schema),
            record({**first, "body": mark, "raw": mark.encode(), "tags": [mark], "total": 6}, schema),
        ]
    )
    assert rows(url) == [{**first, "tags": '["a"]', "total": 6}]
    kept = await make(**UPSERT, unavailable_value_placeholder="other")
    await kept.write([record({**first, "body": mark}, schema)])
    assert rows(url)[0]["body"] == mark


async def test_a_refusal_names_table_column_and_value(make: Make) -> None:
    """SQLite has no infinite days; the refusal shows which row to look for."""
    sink = await make(errors_tolerance="none")
    day = Schema(type="int32", name="io.debezium.time.Date")
    schema = Schema(type="struct", fields=(Field(name="day", schema=day),))
    with pytest.raises(RecordRefused, match="table shop_orders, column day: 2146033979 cannot be stored"):
        await sink.write([record({"day": 2_146_033_979}, schema)])
