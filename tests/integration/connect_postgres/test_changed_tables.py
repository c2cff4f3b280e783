"""Tables that are not any more what they were when the log was written, and what a server's own settings do to a connector."""

import logging

import pytest
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, changes, execute, settings

from busway_connect.connector import Offset

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


async def _begun(database: Postgres) -> Offset:
    """The offset of a connector that has read the row of `t`."""
    async with RunningSource(settings(database)) as run:
        return (await run.read_count(1))[-1].offset


async def test_a_key_that_was_renamed_since_is_the_one_that_the_log_has(database: Postgres) -> None:
    """Changes from before the renaming have the whole key under its old name, those after it under the new one."""
    execute(
        database,
        "CREATE TABLE t (a int, b int, v int, PRIMARY KEY (b, a))",
        "CREATE TABLE u (id int PRIMARY KEY, other int NOT NULL UNIQUE)",
        "INSERT INTO t VALUES (1, 1, 0)",
    )
    offset = await _begun(database)
    execute(
        database,
        "INSERT INTO t VALUES (2, 3, 0)",
        "DELETE FROM t WHERE a = 2",
        "INSERT INTO u VALUES (7, 8)",
        "DELETE FROM u",
        "ALTER TABLE t RENAME COLUMN a TO c",
        "ALTER TABLE u DROP CONSTRAINT u_pkey",
        "ALTER TABLE u ADD PRIMARY KEY (other)",
        "INSERT INTO t VALUES (4, 5, 0)",
    )
    async with RunningSource(settings(database), offset) as run:
        keys = [(record.topic, record.key) for record in await run.read_count(7)]
    assert keys == [
        *[("p.public.t", {"a": 2, "b": 3})] * 3,
        *[("p.public.u", {"id": 7})] * 3,
        ("p.public.t", {"b": 5, "c": 4}),
    ]


async def test_an_enums_label_that_was_renamed_since_is_read(database: Postgres) -> None:
    """The log holds a label that the catalogue has no more; a label that came later is noticed all the same."""
    execute(
        database,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (id int PRIMARY KEY, mood mood)",
        "INSERT INTO t VALUES (1, 'ok')",
    )
    offset = await _begun(database)
    execute(database, "INSERT INTO t VALUES (2, 'sad')", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    async with RunningSource(settings(database), offset) as run:
        (row,) = await run.read_count(1)
        assert row.value["after"] == {"id": 2, "mood": "sad"}
        execute(database, "ALTER TYPE mood ADD VALUE 'new'")
        execute(database, "INSERT INTO t VALUES (3, 'new'), (4, 'blue')")
        await run.read_count(3)
    records = changes(run.records)
    assert [record.value["after"]["mood"] for record in records] == ["sad", "new", "blue"]


async def test_an_identity_without_the_key_is_told_once(database: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """REPLICA IDENTITY USING INDEX: a delete's key is not in the log; the warning names the table, the column and the remedy."""
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_other_key",
        "CREATE TABLE whole (id int PRIMARY KEY, other int NOT NULL)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 1)",
    )
    with caplog.at_level(logging.WARNING, "busway.connect.postgres"):
        async with RunningSource(settings(database)) as run:
            await run.read_count(1)
            execute(
                database, "DELETE FROM t", "ALTER TABLE t ADD v int", "INSERT INTO t VALUES (2, 2)", "DELETE FROM t"
            )
            execute(database, "INSERT INTO whole VALUES (1, 1)", "DELETE FROM whole")
            await run.read_count(9)
    (message,) = [
        log_record.getMessage() for log_record in caplog.records if "replica identity" in log_record.getMessage()
    ]
    assert message.startswith("public.t: the replica identity leaves out id of the key")
    assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in message


async def test_bounds_for_ordinary_statements_do_not_cut_a_snapshot_off(database: Postgres) -> None:
    """A role's `statement_timeout` and `idle_in_transaction_session_timeout`, shorter than the snapshot takes."""
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, fat text)",
        "INSERT INTO t SELECT n, repeat('x', 3000) FROM generate_series(1, 6000) n",  # more than sockets hold
        "ALTER ROLE postgres SET statement_timeout = '400ms'",
        "ALTER ROLE postgres SET idle_in_transaction_session_timeout = '400ms'",
    )
    try:
        async with RunningSource(settings(database, snapshot_fetch_size="100", max_queue_size="100")) as run:
            # The snapshot waits behind its first rows, for no task reads.
            execute(database, "SET statement_timeout = 0; SELECT pg_sleep(0.6)")
            assert len(await run.read_count(6000)) == 6000
    finally:
        execute(
            database,
            "ALTER ROLE postgres RESET statement_timeout",
            "ALTER ROLE postgres RESET idle_in_transaction_session_timeout",
        )
