"""What several suites share: a PostgreSQL server for the session, and an empty database on it for each test."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests that leave it running."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """That server, its database as empty as a new one."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server
