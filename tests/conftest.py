"""What several suites share: a PostgreSQL server for the session, an empty database on it for each test, and programs that end with it."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tests.support.postgres import Postgres
from tests.support.programs import end_spawned


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


@pytest.fixture
async def programs_end() -> AsyncIterator[None]:
    """Programs that the test started are killed where it did not see them end, because it failed or took too long."""
    yield
    await end_spawned()
