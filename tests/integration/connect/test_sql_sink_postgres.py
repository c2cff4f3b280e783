"""The SQL sink on PostgreSQL: types, upserts through a restart of the server, records that it refuses."""

import asyncio
import decimal
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.connect_worker import Rest, records_of, until
from tests.support.postgres import Postgres

from busway import Producer
from busway_connect.connector import SinkRecord
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
    await until(lambda: _committed(rest, 3000))
    expected = [(number, 2900 + number if number != 99 else 2899) for number in range(100)]
    assert rows(postgres, "SELECT id, n FROM counts ORDER BY id") == expected
    assert len(await records_of(bus, "dead")) == 3


async def _some(postgres: Postgres) -> bool:
    return bool(rows(postgres, "SELECT 1 FROM counts LIMIT 1"))


async def _restarting(rest: Rest) -> bool:
    return await rest.task_state("counts") == "RESTARTING"


async def _committed(rest: Rest, count: int) -> bool:
    _, found = await rest.call("GET", "/connectors/counts/offsets")
    return sum(one["offset"]["kafka_offset"] for one in found["offsets"]) == count
