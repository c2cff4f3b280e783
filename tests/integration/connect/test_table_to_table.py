"""A table captured, carried as Avro and written to another table: source, converters, registry and sink together."""

import asyncio

import psycopg
import pytest
from tests.support.connect_worker import Rest, worker_config
from tests.support.postgres import Postgres
from tests.support.waiting import until

from busway_connect.server import ConnectServer
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer


@pytest.mark.postgres
@pytest.mark.slow
async def test_a_copy_of_a_table_follows_it(bus: str) -> None:
    """Rows of the snapshot, then updates, deletes and a changed key; through a restart of the worker in between."""
    with Postgres() as postgres:
        _run(postgres, "CREATE TABLE accounts (id bigint PRIMARY KEY, name text, amount numeric(10,2))")
        _run(postgres, "INSERT INTO accounts SELECT g, 'n' || g, g FROM generate_series(1, 500) g")
        async with RegistryServer(RegistryConfig(port=0, database="memory:")) as registry:
            converters = {"key.converter": "AvroConverter", "value.converter": "AvroConverter"}
            converters |= {f"{name}.schema.registry.url": registry.url for name in list(converters)}
            source = {
                "connector.class": "PostgresConnector",
                "database.hostname": "127.0.0.1",
                "database.port": str(postgres.port),
                "database.user": "postgres",
                "database.dbname": "postgres",
                "topic.prefix": "bank",
                "table.include.list": "public.accounts",
            }
            sink = {
                "connector.class": "JdbcSink",
                "topics": "bank.public.accounts",
                "connection.url": postgres.url,
                "insert.mode": "upsert",
                "primary.key.mode": "record_key",
                "delete.enabled": "true",
                "schema.evolution": "basic",
                "collection.name.format": "copy",
            }
            async with ConnectServer(worker_config(bus)) as server:
                rest = Rest(server.url)
                for name, config in (("cdc", source), ("copy", sink)):
                    status, response = await rest.call(
                        "POST", "/connectors", {"name": name, "config": {**config, **converters}}
                    )
                    assert status == 201, response
                await until(lambda: _same(postgres))
                await rest.http.aclose()
            _run(postgres, "UPDATE accounts SET amount = amount + 1 WHERE id % 2 = 0")
            _run(postgres, "DELETE FROM accounts WHERE id <= 10")
            _run(postgres, "UPDATE accounts SET id = 1000 WHERE id = 500")
            async with ConnectServer(worker_config(bus)):
                await until(lambda: _same(postgres))


def _run(postgres: Postgres, sql: str) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(sql)  # type: ignore[call-overload]


_DIFFERENT = "SELECT count(*) FROM (({0} EXCEPT {1}) UNION ALL ({1} EXCEPT {0})) AS different".format(
    "SELECT id, name, amount FROM accounts", "SELECT id, name, amount FROM copy"
)


async def _same(postgres: Postgres) -> bool:
    return await asyncio.to_thread(_compare, postgres)


def _compare(postgres: Postgres) -> bool:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        try:
            return connection.execute(_DIFFERENT).fetchone() == (0,)  # type: ignore[call-overload, no-any-return]
        except psycopg.errors.UndefinedTable:
            return False
