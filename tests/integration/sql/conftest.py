"""The databases: a file of SQLite for each test, and one PostgreSQL for all, emptied before each."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests.support.postgres import Postgres

from busway_bus.testing.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the whole session."""
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'service.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    await emptied(server)
    return server.url


async def emptied(server: Postgres) -> None:
    """Everything goes that a test has left."""
    engine = create_async_engine(server.url)
    async with engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    await engine.dispose()


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on it."""
    made = create_async_engine(url)
    yield made
    await made.dispose()


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    """A broker in this process."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster:
        yield cluster.bootstrap_servers
