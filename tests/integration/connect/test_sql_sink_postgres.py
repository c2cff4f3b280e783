"""The SQL sink on PostgreSQL: types, upserts through a restart of the server, records that it refuses."""

import asyncio
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.connect_worker import Rest, records_of
from tests.support.postgres import Postgres
from tests.support.waiting import until

from busway import Producer
from busway_connect.connector import ConfigInvalid, RecordRefused, Retriable, SinkRecord
from busway_connect.decimals import DECIMAL, decimal_to_bytes
from busway_connect.schema import Field, Schema
from busway_connect.sql_sink import JdbcSink

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server of this module's own."""
    with Postgres() as server:
        yield server


def rows(postgres: Postgres, sql: str) -> list[tuple[Any, ...]]:
    """What the server answers."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        cursor = connection.execute(sql)  # type: ignore[call-overload]
        return list(cursor.fetchall()) if cursor.description else []


async def test_values_arrive_in_columns_of_their_types(postgres: Postgres) -> None:
    """Exact numbers, moments with and without a zone, bytes; written twice, there once."""
    schema = Schema(
        type="struct",
        fields=(
            Field(name="id", schema=Schema(type="int64")),
            Field(name="price", schema=Schema(type="bytes", name=DECIMAL, parameters=(("scale", "4"),))),
            Field(name="at", schema=Schema(type="int64", name="io.debezium.time.MicroTimestamp")),
            Field(name="zoned", schema=Schema(type="string", name="io.debezium.time.ZonedTimestamp")),
            Field(name="raw", schema=Schema(type="bytes")),
        ),
    )
    value = {
        "id": 1,
        "price": decimal_to_bytes(decimal.Decimal("-99999999999999.1234"), 4),
        "at": 1_700_000_000_123_456,
        "zoned": "2024-01-02T03:04:05.678901Z",
        "raw": b"\x00\xff",
    }
    config = {
        "connection.url": postgres.url,
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        "collection.name.format": "public.typed",
    }
    assert JdbcSink.validate(config) == {}
    sink = JdbcSink("sink", config)
    await sink.start()
    record = SinkRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, key_schema=None, value=value, value_schema=schema
    )
    await sink.write([record, record])
    await sink.write([record])
    await sink.stop()
    assert rows(
        postgres, "SELECT price, at::text, zoned AT TIME ZONE 'UTC' = '2024-01-02 03:04:05.678901', raw FROM typed"
    ) == [(decimal.Decimal("-99999999999999.1234"), "2023-11-14 22:13:20.123456", True, b"\x00\xff")]


BEYOND: list[tuple[str, str, Any, str]] = [
    ("int32", "io.debezium.time.Date", 2_146_033_979, "infinity"),
    ("int32", "io.debezium.time.Date", -2_147_472_691, "-infinity"),
    ("int32", "io.debezium.time.Date", 6_574_602, "19970-08-26"),
    ("int32", "io.debezium.time.Date", -719_163, "0001-12-31 BC"),
    ("int64", "io.debezium.time.MicroTimestamp", 2**63 - 1, "infinity"),
    ("int64", "io.debezium.time.MicroTimestamp", -(2**63), "-infinity"),
    ("int64", "io.debezium.time.MicroTimestamp", 253_402_300_800_000_001, "10000-01-01 00:00:00.000001"),
    ("int64", "io.debezium.time.Timestamp", 9_223_372_036_825_200_000, "infinity"),
    ("int64", "io.debezium.time.Timestamp", -62_135_596_801_000, "0001-12-31 23:59:59 BC"),
    ("string", "io.debezium.time.ZonedTimestamp", "-infinity", "-infinity"),
    ("string", "io.debezium.time.ZonedTimestamp", "+10000-01-01T00:00:00Z", "10000-01-01 00:00:00+00"),
    ("string", "io.debezium.time.ZonedTimestamp", "-0001-02-03T00:00:00Z", "0002-02-03 00:00:00+00 BC"),
    ("int64", "io.debezium.time.MicroTime", 86_400_000_000, "24:00:00"),
]


async def test_what_python_has_no_value_for_arrives_too(postgres: Postgres) -> None:
    """Infinities, years before 1 and after 9999, the end of a day; and arrays as JSON of their values."""
    exact = Schema(type="bytes", name=DECIMAL, parameters=(("scale", "2"),), optional=True)
    schema = Schema(
        type="struct",
        fields=(
            *(
                Field(name=f"c{number}", schema=Schema(type=kind, name=name))
                for number, (kind, name, _, _) in enumerate(BEYOND)
            ),  # type: ignore[arg-type]
            Field(name="prices", schema=Schema(type="array", value_schema=exact)),
            Field(name="shares", schema=Schema(type="array", value_schema=Schema(type="float64"))),
        ),
    )
    value: dict[str, Any] = {f"c{number}": given for number, (_, _, given, _) in enumerate(BEYOND)}
    value |= {"prices": [b"\x04\xd2", None], "shares": [0.5, float("nan")]}
    config = {
        "connection.url": postgres.url,
        "schema.evolution": "basic",
        "collection.name.format": "public.beyond",
    }
    assert JdbcSink.validate(config) == {}
    sink = JdbcSink("sink", config)
    await sink.start()
    record = SinkRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, key_schema=None, value=value, value_schema=schema
    )
    await sink.write([record])
    await sink.stop()
    columns = ", ".join(f"c{number}::text" for number in range(len(BEYOND)))
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        row = connection.execute(f"SELECT {columns}, prices, shares FROM beyond").fetchone()  # type: ignore[call-overload]
    assert row == (*(wanted for *_, wanted in BEYOND), '["12.34", null]', '[0.5, "NaN"]')


def value_record(value: Any, offset: int = 0) -> SinkRecord:
    """A record without schemas."""
    return SinkRecord(
        topic="t", partition=0, offset=offset, timestamp_ms=0, key=None, key_schema=None, value=value, value_schema=None
    )


async def started(postgres: Postgres, table: str, **more: str) -> JdbcSink:
    """A sink that upserts into a table by `id`; `more` with `_` for `.`."""
    config = {
        "connection.url": postgres.url,
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        "collection.name.format": table,
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    assert JdbcSink.validate(config) == {}
    sink = JdbcSink("sink", config)
    await sink.start()
    return sink


def _amount(text: str, precision: int, scale: int) -> SinkRecord:
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    amount = Schema(type="bytes", optional=True, name=DECIMAL, version=1, parameters=parameters)
    fields = (Field(name="id", schema=Schema(type="int64")), Field(name="amount", schema=amount))
    value = {"id": 1, "amount": decimal_to_bytes(decimal.Decimal(text), scale)}
    return SinkRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, key_schema=None, value=value,
        value_schema=Schema(type="struct", fields=fields),
    )  # fmt: skip


@pytest.mark.parametrize("there", [False, True])
async def test_exact_numbers_keep_their_precision_and_scale(postgres: Postgres, there: bool) -> None:
    """In a table and in a column that are made; a number that would be rounded later is a bad record."""
    table = f"amounts_{there}".lower()
    if there:
        rows(postgres, f"CREATE TABLE {table} (id bigint)")
    config = {"connection.url": postgres.url, "schema.evolution": "basic", "collection.name.format": table}
    sink = JdbcSink("sink", config)
    await sink.start()
    await sink.write([_amount("1234567890.12", 12, 2)])
    with pytest.raises(RecordRefused, match="more than 2 digits behind the point"):
        await sink.write([_amount("1.2345", 12, 4)])
    with pytest.raises(RecordRefused, match="more than 2 digits behind the point"):
        await sink.write([_amount("1234567890123456789012345678901234567890.001", 43, 3)])
    await sink.stop()
    assert rows(
        postgres,
        f"SELECT numeric_precision, numeric_scale FROM information_schema.columns WHERE table_name = '{table}' AND column_name = 'amount'",
    ) == [(12, 2)]
    assert rows(postgres, f"SELECT amount FROM {table}") == [(decimal.Decimal("1234567890.12"),)]


async def test_a_login_that_is_refused_ends_the_task(postgres: Postgres) -> None:
    """With what the server says and the settings to mend, and not a try after a try; a database that is not there too."""
    ((hba,),) = rows(postgres, "SHOW hba_file")
    path = Path(hba)
    path.write_text(f"host all clerk 127.0.0.1/32 scram-sha-256\n{path.read_text()}")
    rows(postgres, "CREATE ROLE clerk LOGIN PASSWORD 'right'")
    rows(postgres, "SELECT pg_reload_conf()")
    url = postgres.url.replace("postgres@", "", 1)
    for more, text in (
        ({"connection.username": "clerk", "connection.password": "wrong"}, "password authentication failed"),
        ({"connection.username": "clerk"}, "no password supplied"),
        ({"connection.username": "nobody"}, 'role "nobody" does not exist'),
        ({"connection.username": "postgres", "connection.url": url.replace("/postgres", "/none")}, "does not exist"),
    ):
        sink = JdbcSink("sink", {"connection.url": url, **more})
        with pytest.raises(ConfigInvalid, match=text) as refused:
            await sink.start()
        await sink.stop()
        assert "mend connection.username, connection.password or connection.url" in str(refused.value)
        assert "wrong" not in str(refused.value)


async def test_any_name_of_a_field_is_a_column(postgres: Postgres) -> None:
    """What PostgreSQL's driver and SQLAlchemy read meaning into, in a table that is made and in columns that come later."""
    sink = await started(postgres, "odd")
    value = {"id": 1, "select": 1, "50% off": 2}
    more = {"a:b": 3, "100%": 4, "%(id)s": 5, "Aä": 6, "(x)": 7}
    await sink.write([value_record(value)])
    await sink.write([value_record({**value, **more})])
    await sink.stop()
    with psycopg.connect(postgres.dsn) as connection:
        cursor = connection.execute("SELECT * FROM odd")
        assert [column.name for column in cursor.description or ()] == [*value, *more]
        assert cursor.fetchall() == [(1, 1, 2, 3, 4, 5, 6, 7)]


async def test_what_an_update_left_as_it_was_stays_in_a_column_that_may_not_be_null(postgres: Postgres) -> None:
    """The placeholder for a TOASTed value changes nothing; where the row is not there, the record is refused with the reason."""
    rows(postgres, "CREATE TABLE toast (id int PRIMARY KEY, body text NOT NULL, n int)")
    sink = await started(postgres, "toast")
    mark = "__debezium_unavailable_value"
    await sink.write([value_record({"id": 1, "body": "long", "n": 1}), value_record({"id": 1, "body": mark, "n": 2})])
    assert rows(postgres, "SELECT * FROM toast") == [(1, "long", 2)]
    with pytest.raises(RecordRefused, match="not-null"):
        await sink.write([value_record({"id": 2, "body": mark, "n": 2})])
    await sink.stop()


async def test_what_is_no_records_fault_makes_no_dead_letter(postgres: Postgres) -> None:
    """A server that only reads, as a standby after a failover, passes; a right that is missing ends the task."""
    rows(
        postgres,
        "CREATE TABLE guarded (id bigint PRIMARY KEY); CREATE ROLE reader LOGIN; GRANT SELECT ON guarded TO reader",
    )
    reading = f"{postgres.url}{'&' if '?' in postgres.url else '?'}options=-c%20default_transaction_read_only%3Don"
    sink = await started(postgres, "guarded", connection_url=reading)
    with pytest.raises(Retriable, match="read-only"):
        await sink.write([value_record({"id": 1})])
    await sink.stop()
    sink = await started(postgres, "guarded", connection_url=f"postgresql://reader@127.0.0.1:{postgres.port}/postgres")
    with pytest.raises(ConfigInvalid, match="permission denied for table guarded"):
        await sink.write([value_record({"id": 1})])
    await sink.stop()


@pytest.mark.parametrize("bad", ["\ud800", "a\0b", 2**70, 1.5, {"a": "\ud800"}])
async def test_a_value_that_the_driver_cannot_take_is_a_bad_record(postgres: Postgres, bad: Any) -> None:
    """Half a character, NUL, a number beyond the column or one that it would round: reported as this record's fault, and those before are written."""
    rows(postgres, "DROP TABLE IF EXISTS picky; CREATE TABLE picky (id int PRIMARY KEY, t text, n bigint)")
    sink = await started(postgres, "picky")
    column = "n" if isinstance(bad, int | float) else "t"
    with pytest.raises(RecordRefused) as refused:
        await sink.write([value_record({"id": 1}), value_record({"id": 2, column: bad})])
    assert refused.value.index == 1
    assert rows(postgres, "SELECT id FROM picky") == [(1,)]
    await sink.stop()


async def test_columns_of_a_table_that_somebody_made_keep_their_meaning(postgres: Postgres) -> None:
    """JSON is no text of a JSON text, an array no list of characters; UUIDs, enums and addresses are found by their text."""
    rows(
        postgres,
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE special (id uuid PRIMARY KEY, j json, b jsonb, u uuid, t text[],"
        " n int[], m mood, i inet, v interval, x text, empty int[], grid int[][])",
    )
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    kinds: dict[str, tuple[Schema, Any]] = {
        "id": (Schema(type="string", name="io.debezium.data.Uuid"), key),
        "j": (Schema(type="string", name="io.debezium.data.Json"), '{"a": 1}'),
        "b": (Schema(type="string", name="io.debezium.data.Json"), "[1, null]"),
        "u": (Schema(type="string", name="io.debezium.data.Uuid", optional=True), None),
        "t": (Schema(type="array", value_schema=Schema(type="string")), ["a,b", None, '"q"']),
        "n": (Schema(type="array", value_schema=Schema(type="int32")), [1, 2]),
        "m": (Schema(type="string", name="io.debezium.data.Enum"), "ok"),
        "i": (Schema(type="string"), "10.1.2.3/24"),
        "v": (Schema(type="string", name="io.debezium.time.Interval"), "P0Y0M1DT2H0M0S"),
        "x": (Schema(type="array", value_schema=Schema(type="string")), ["a"]),
        "empty": (Schema(type="array", value_schema=Schema(type="int32")), []),
        "grid": (
            Schema(type="array", value_schema=Schema(type="array", value_schema=Schema(type="int32"))),
            [[1, 2], [3, 4]],
        ),
    }
    schema = Schema(type="struct", fields=tuple(Field(name=name, schema=schema) for name, (schema, _) in kinds.items()))
    record = SinkRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, key_schema=None, value_schema=schema,
        value={name: value for name, (_, value) in kinds.items()},
    )  # fmt: skip
    sink = await started(postgres, "special")
    await sink.write([record])
    await sink.write([record])
    await sink.stop()
    assert rows(
        postgres,
        "SELECT id::text, j->>'a', b::text, u, t, n, m::text, i::text, v::text, x, empty, grid FROM special",
    ) == [
        (
            key,
            "1",
            "[1, null]",
            None,
            ["a,b", None, '"q"'],
            [1, 2],
            "ok",
            "10.1.2.3/24",
            "1 day 02:00:00",
            '["a"]',
            [],
            [[1, 2], [3, 4]],
        )
    ]


async def test_a_sink_that_was_cut_off_writes_nothing_behind_its_successor(postgres: Postgres) -> None:
    """Its statement waits for a lock: when `stop` returns it is gone, and cannot put back an older value later."""
    rows(postgres, "CREATE TABLE locked (id bigint PRIMARY KEY, n bigint); INSERT INTO locked VALUES (1, 0)")
    sink = await started(postgres, "locked")
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(postgres.dsn) as other:
        other.execute("SELECT * FROM locked FOR UPDATE")
        writing = asyncio.ensure_future(sink.write([value_record({"id": 1, "n": 1})]))
        while rows(postgres, waiting) == [(0,)]:
            await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.wait([writing])
        await sink.stop()
        assert rows(postgres, waiting) == [(0,)]
    assert rows(postgres, "SELECT n FROM locked") == [(0,)]


async def test_a_server_that_is_killed_in_between_ends_exact(postgres: Postgres, rest: Rest, bus: str) -> None:
    """The sink waits for the server and goes on; every key has its newest value, refused records are among the dead letters."""
    rows(postgres, "CREATE TABLE counts (id bigint PRIMARY KEY, n int NOT NULL)")
    await rest.create(
        "counts",
        connector_class="JdbcSink",
        topics="counts",
        connection_url=postgres.url,
        insert_mode="upsert",
        primary_key_mode="record_value",
        primary_key_fields="id",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="dead",
        value_converter="JsonConverter",
        value_converter_schemas_enable="false",
        key_converter="ByteArrayConverter",
    )
    async with Producer(bus) as producer:
        for number in range(3000):
            value = {"id": number % 100, "n": None if number % 1000 == 999 else number}
            await producer.send("counts", json.dumps(value).encode(), str(number % 100).encode())
            if number == 1500:
                await until(lambda: _some(postgres))
                await asyncio.to_thread(postgres.kill)
    await until(lambda: _restarting(rest))
    await asyncio.to_thread(postgres.start)
    # Each row of a batch with a refused one is a transaction of its own, which PostgreSQL syncs.
    await until(lambda: _committed(rest, 3000), seconds=60, pause_s=0.1)
    expected = [(number, 2900 + number if number != 99 else 2899) for number in range(100)]
    assert rows(postgres, "SELECT id, n FROM counts ORDER BY id") == expected
    assert len(await records_of(bus, "dead")) == 3


async def _some(postgres: Postgres) -> bool:
    return bool(rows(postgres, "SELECT 1 FROM counts LIMIT 1"))


async def _restarting(rest: Rest) -> bool:
    return await rest.task_state("counts") == "RESTARTING"


async def _committed(rest: Rest, count: int) -> bool:
    _, response = await rest.call("GET", "/connectors/counts/offsets")
    return sum(entry["offset"]["kafka_offset"] for entry in response["offsets"]) == count
