"""One PostgreSQL for these tests; each test has a database of its own in it."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server for the module."""
    with Postgres() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> Iterator[Postgres]:
    """The server without slots, publications and tables of tests before."""
    yield server
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'"
            " AND datname IS NOT NULL"
        )
        while connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone() != (0,):
            pass
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
            connection.execute(f"DROP PUBLICATION {name}")
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
