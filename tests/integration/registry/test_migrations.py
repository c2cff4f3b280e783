"""The tables of an earlier release are brought to today's without loss; those of a later one, or of another program, are refused."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert
from sqlalchemy.engine import Connection
from tests.integration.registry.conftest import POSTGRES, Client

from busway_registry.config import RegistryConfig
from busway_registry.server import NoStore, RegistryServer
from busway_registry.store.revisions import HEAD, migrate
from busway_registry.store.sql import SqlStore
from busway_registry.store.tables import METADATA, REVISIONS

FIRST_RELEASE = Path(__file__).with_name("first_release.sql")
"""What 0.1.0 left in a file: three schemas of two subjects, one with a reference, a fourth that was deleted for good, a level."""


def first_release(folder: Path) -> str:
    """The URL of a database as 0.1.0 left it."""
    connection = sqlite3.connect(folder / "registry.db")
    connection.executescript(FIRST_RELEASE.read_text())
    connection.close()
    return f"sqlite:///{folder / 'registry.db'}"


@pytest.mark.slow
async def test_the_first_release(tmp_path: Path) -> None:
    """Everything is there, ids go on after the highest that was ever given, and the second start finds nothing to do."""
    database = first_release(tmp_path)
    for new_id in (5, 6):
        async with RegistryServer(RegistryConfig(port=0, database=database)) as server:
            client = Client(server.url)
            async with client.http:
                assert (await client.get("/subjects")).body[:2] == ["a", "b"]
                assert (await client.get("/subjects/a/versions")).body == [1, 2]
                assert (await client.get("/schemas/ids/1/schema")).body == "string"
                version = (await client.get("/subjects/b/versions/1")).body
                assert version["references"] == [{"name": "a.A", "subject": "a", "version": 2}]
                assert (await client.get("/subjects/a/versions/2/referencedby")).body == [version["id"]] == [3]
                assert (await client.get("/config/a")).body["compatibilityLevel"] == "NONE"
                assert (await client.get("/schemas/ids/4")).code == 40403
                assert (await client.register(f"new{new_id}", f'{{"type":"fixed","name":"F","size":{new_id}}}')).body[
                    "id"
                ] == new_id


@pytest.mark.slow
def test_stores_that_begin_together_in_one_event_loop_after_another(tmp_path: Path) -> None:
    """They bring the tables of their databases to today's one at a time in a process; the lock for that belongs to no event loop."""

    async def begin(loop: int) -> None:
        folders = [tmp_path / f"{loop}-{number}" for number in range(3)]
        for folder in folders:
            folder.mkdir()
        stores = [SqlStore(first_release(folder).replace("sqlite:", "sqlite+aiosqlite:")) for folder in folders]
        await asyncio.gather(*(store.open() for store in stores))
        for store in stores:
            await store.close()

    for loop in range(2):
        asyncio.run(begin(loop))


def differences(connection: Connection) -> Any:
    """What Alembic would change to come from the tables of a database to `METADATA`."""
    context = MigrationContext.configure(connection, opts={"version_table": REVISIONS.name, "compare_type": True})
    return compare_metadata(context, METADATA)


@pytest.mark.parametrize("database", ["sqlite", POSTGRES], indirect=True)
def test_the_steps_lead_to_todays_tables(database: str) -> None:
    """All steps in turn make what `tables` describes, and the last of them is the one that a new database is said to be at."""
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        assert differences(connection)
        migrate(connection)
        assert (
            MigrationContext.configure(connection, opts={"version_table": REVISIONS.name}).get_current_revision()
            == HEAD
        )
        assert differences(connection) == []
    engine.dispose()
    config = Config()
    config.set_main_option("script_location", "busway_registry:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def refusal(database: str) -> str:
    """What a registry that cannot start says."""
    with pytest.raises(NoStore) as refused:
        await RegistryServer(RegistryConfig(port=0, database=database)).start()
    return str(refused.value)


async def test_a_later_release(tmp_path: Path) -> None:
    """A database with steps that this code does not know is left as it is."""
    database = f"sqlite:///{tmp_path / 'registry.db'}"
    async with RegistryServer(RegistryConfig(port=0, database=database)):
        pass
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(REVISIONS.delete())
        connection.execute(insert(REVISIONS).values(version_num="9999"))
    before = (tmp_path / "registry.db").read_bytes()
    assert f"revision 9999, and this release knows those up to {HEAD}" in await refusal(database)
    assert (tmp_path / "registry.db").read_bytes() == before
    engine.dispose()


async def test_another_programs_database(tmp_path: Path) -> None:
    """Tables that are not the registry's are not touched."""
    connection = sqlite3.connect(tmp_path / "registry.db")
    connection.execute("CREATE TABLE settings (theirs TEXT)")
    connection.close()
    assert "tables of another program (settings)" in await refusal(f"sqlite:///{tmp_path / 'registry.db'}")
