"""What a connector may not do, or would do wrongly without a word: refused at the start with the remedy."""

import asyncio
import logging

import psycopg
import pytest
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, execute, settings

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres.slots import PositionLost

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


async def refused(config: dict[str, str], setting: str, says: str) -> None:
    """The start fails, names the setting and the remedy."""
    with pytest.raises(ConfigInvalid, match=says) as problem:
        async with RunningSource(config) as run:
            await run.read_count(1)
    assert list(problem.value.errors) == [setting]


async def test_a_user_without_replication_is_named(database: Postgres) -> None:
    """Not tried again for ever: an administrator has to grant it."""
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    execute(database, "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN", "GRANT SELECT ON t TO plain")
    await refused(settings(database, database_user="plain"), "database.user", "needs REPLICATION")


async def test_rows_that_a_policy_hides_are_not_left_out_of_the_snapshot(database: Postgres) -> None:
    """Row-level security would filter the snapshot, and not the log: refused, as pg_dump does."""
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY odd ON t USING (id % 2 = 1)",
        "CREATE PUBLICATION dbz_publication FOR ALL TABLES",
        "DROP ROLE IF EXISTS partial",
        "CREATE ROLE partial LOGIN REPLICATION",
        "GRANT USAGE ON SCHEMA public TO partial",
        "GRANT SELECT ON t TO partial",
    )
    await refused(settings(database, database_user="partial"), "database.user", "row-level security policy")
    execute(database, "ALTER ROLE partial BYPASSRLS")
    async with RunningSource(settings(database, database_user="partial")) as run:
        assert [record.key for record in await run.read_count(2)] == [{"id": 1}, {"id": 2}]


async def test_a_slot_that_the_server_gave_up_is_named(database: Postgres) -> None:
    """Found by a connector without an offset: no snapshot again and again; when_needed makes the slot again."""
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    execute(database, "SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    try:
        execute(database, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
        status = "SELECT wal_status FROM pg_replication_slots"
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            while connection.execute(status).fetchone() != ("lost",):
                connection.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")
        with pytest.raises(PositionLost, match=r"pg_drop_replication_slot\('debezium'\)"):
            async with RunningSource(settings(database)):
                pass
    finally:
        execute(database, "ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    async with RunningSource(settings(database, snapshot_mode="when_needed")) as run:
        await run.read_count(1)


async def test_changes_that_come_under_another_name_are_not_lost_without_a_word(database: Postgres) -> None:
    """A partitioned table's changes are those of its partitions, or with publish_via_partition_root the other way round."""
    execute(
        database,
        "CREATE TABLE parent (a int PRIMARY KEY) PARTITION BY RANGE (a)",
        "CREATE TABLE parent_low PARTITION OF parent FOR VALUES FROM (0) TO (100)",
    )
    root, leaf = (
        settings(database, table_include_list=r"public\.parent"),
        settings(database, table_include_list=r"public\.parent_low"),
    )
    await refused(root, "table.include.list", r"public\.parent_low.*publish_via_partition_root = true")
    execute(database, "ALTER PUBLICATION dbz_publication SET (publish_via_partition_root = true)")
    await refused(leaf, "table.include.list", r"come as those of public\.parent")
    async with RunningSource(root) as run:
        execute(database, "INSERT INTO parent VALUES (1)")
        assert [record.topic for record in await run.read_count(1)] == ["p.public.parent"]


async def test_operations_that_are_not_published_are_told(database: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """A publication of inserts alone brings no updates and deletes."""
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION dbz_publication FOR ALL TABLES WITH (publish = 'insert')",
    )
    with caplog.at_level(logging.WARNING):
        async with RunningSource(settings(database)) as run:
            await run.read_count(1)
    messages = [message for message in caplog.messages if "does not publish" in message]
    assert len(messages) == 1
    assert "update, delete;" in messages[0]


async def test_a_choice_of_no_table_is_told(database: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """A slip in a regular expression would capture nothing for ever."""
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)")
    with caplog.at_level(logging.WARNING):
        async with RunningSource(settings(database, table_include_list="t")):
            await asyncio.sleep(0)
    assert any("chooses no table" in message for message in caplog.messages)
