"""PostgreSQL that is not there, or not as it should be: one line that says why, and service again as soon as it is back."""

import logging
import sys

import psycopg
import pytest
from tests.integration.registry.conftest import Client
from tests.integration.registry.test_migrations import refusal
from tests.support.postgres import Postgres
from tests.support.programs import held_ports

from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer


@pytest.mark.slow
@pytest.mark.postgres
async def test_away_and_back(caplog: pytest.LogCaptureFixture) -> None:
    """Killed under a running registry: 50001 and a line in the log; then the same registry serves what was registered."""
    with Postgres() as postgres:
        async with RegistryServer(RegistryConfig(port=0, database=postgres.dsn)) as server:
            client = Client(server.url)
            async with client.http:
                assert (await client.register("s", '"string"')).body["id"] == 1
                postgres.kill()
                caplog.clear()
                for answer in (await client.get("/subjects"), await client.register("s", '"int"')):
                    assert (answer.status, answer.code) == (500, 50001)
                lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
                assert len(lines) == 2
                assert all("start it" in line and "\n" not in line for line in lines)
                postgres.start()
                assert (await client.get("/subjects")).body == ["s"]
                assert (await client.register("t", '"int"')).body["id"] == 2
                postgres.stop()
                postgres.start()
                assert (await client.register("t", '"int"')).body["id"] == 2


@pytest.mark.postgres
async def test_a_writer_that_hangs(postgres: Postgres) -> None:
    """A session that holds the writers' lock for ever costs others a bounded wait, and readers nothing."""
    async with RegistryServer(
        RegistryConfig(port=0, database=f"{postgres.dsn}?options=-c%20lock_timeout%3D50")
    ) as server:
        client = Client(server.url)
        async with client.http:
            await client.register("s", '"string"')
            with psycopg.connect(postgres.dsn) as other:
                other.execute(f"SELECT pg_advisory_xact_lock({0x62757377})")
                assert (await client.register("t", '"int"')).code == 50001
                assert (await client.register("s", '"int"')).code == 409  # judged before anybody takes the lock
                assert (await client.get("/subjects")).body == ["s"]
            assert (await client.register("t", '"int"')).body["id"] == 2


@pytest.mark.postgres
async def test_what_is_wrong_is_said(postgres: Postgres) -> None:
    """A password, a user, a database, a host, a port: each in one line, without the password, with the remedy."""
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS locked")
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        (file,) = admin.execute("SHOW hba_file").fetchone() or ("",)
        rules = "host all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust"
        admin.execute(f"COPY (SELECT unnest(string_to_array('{rules}', E'\\n'))) TO '{file}'")
        admin.execute("SELECT pg_reload_conf()")
    (closed,) = held_ports(1)
    here = f"127.0.0.1:{postgres.port}"
    for database, why in (
        (f"postgresql://locked:hunter2@{here}/postgres", "password authentication failed"),
        (f"postgres://locked@{here}/postgres?password=hunter2", "password authentication failed"),
        (f"postgresql://stranger:hunter2@{here}/postgres", 'role "stranger" does not exist'),
        (f"postgresql://postgres:hunter2@{here}/missing", 'database "missing" does not exist'),
        (f"postgresql://postgres:hunter2@127.0.0.1:{closed}/postgres", "Connection refused"),
        ("postgresql://postgres:hunter2@nowhere.invalid/postgres", "nowhere.invalid"),
    ):
        said = await refusal(database)
        assert why in said
        assert "start it, or give another" in said
        assert "hunter2" not in said
        assert "\n" not in said


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_right_that_is_missing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """To make the tables, or to write into them: in the server's words without the statement, with the remedy."""
    with Postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE reader LOGIN")
        reader = server.dsn.replace("postgres@", "reader@")
        assert (await refusal(reader)).partition(": ")[2] == (
            "permission denied for schema public; give its user the right, for instance as the owner of the database, or name"
            " another user in the URL"
        )
        async with RegistryServer(RegistryConfig(port=0, database=server.dsn)):
            pass
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        async with RegistryServer(RegistryConfig(port=0, database=reader)) as registry:
            client = Client(registry.url)
            async with client.http:
                assert (await client.get("/subjects")).body == []
                assert (await client.register("s", '"string"')).code == 50001
        assert any("permission denied for table ids; give its user the right" in message for message in caplog.messages)


def test_a_url_that_cannot_be_read() -> None:
    """Said so, without repeating it."""
    with pytest.raises(OSError, match="is not a URL such as postgresql://") as refused:
        RegistryServer(RegistryConfig(database="postgresql://user:hunter2@host:port/name"))
    assert "hunter2" not in str(refused.value)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by the extra that brings it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(OSError, match=r"pip install 'busway\[postgres\]'"):
        RegistryServer(RegistryConfig(database="postgresql://host/name"))
