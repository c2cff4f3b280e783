"""What is hidden or left out goes out nowhere: neither in a record nor in the positions that stand beside it."""

import pytest
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, changes, execute, settings

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres import PostgresConnector

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


async def test_a_key_that_is_left_out_is_in_no_position(database: Postgres) -> None:
    """The position is stored, shown by the REST API, and written into a header of each record."""
    execute(
        database,
        "CREATE TABLE people (email text PRIMARY KEY, city text)",
        "INSERT INTO people VALUES ('ann@x.org', 'Bonn'), ('bob@x.org', 'Rome')",
    )
    config = settings(database, column_exclude_list="public.people.email")
    async with RunningSource(config) as run:
        records = await run.read_count(2)
    assert [record.value["after"] for record in records] == [{"city": "Bonn"}, {"city": "Rome"}]
    assert "x.org" not in str(run.records)
    source = PostgresConnector("x", config)
    assert "x.org" not in str([source.position(record.offset) for record in changes(run.records)])


async def test_masked_in_the_snapshot_and_in_the_stream(database: Postgres) -> None:
    """A column's old and new values; the table has a name and a column that are none in Avro."""
    execute(
        database,
        'CREATE TABLE "my-people" (id int PRIMARY KEY, "e-mail" text)',
        'ALTER TABLE "my-people" REPLICA IDENTITY FULL',
        "INSERT INTO \"my-people\" VALUES (1, 'ann@x.org')",
    )
    config = {
        **settings(database),
        "column.mask.with.3.chars": ".*mail",
        "field.name.adjustment.mode": "avro",
        "schema.name.adjustment.mode": "avro",
    }
    async with RunningSource(config) as run:
        await run.read_count(1)
        execute(database, 'UPDATE "my-people" SET "e-mail" = \'ann@y.org\'', 'DELETE FROM "my-people"')
        records = await run.read_count(4)
    rows = [row for record in records if record.value for row in (record.value["before"], record.value["after"]) if row]
    assert rows == [{"id": 1, "e_mail": "***"}] * 4
    assert ".org" not in str(run.records)
    assert {record.value_schema.name for record in records if record.value_schema} == {"p.public.my_people.Envelope"}


async def test_a_masked_key_ends_the_task_before_a_row_is_read(database: Postgres) -> None:
    """The setting is named."""
    execute(database, "CREATE TABLE people (email text PRIMARY KEY)", "INSERT INTO people VALUES ('ann@x.org')")
    config = {**settings(database), "column.mask.with.3.chars": "public.people.email"}
    run = RunningSource(config)
    with pytest.raises(ConfigInvalid, match=r"email of public\.people is in the key"):
        async with run:
            await run.read_count(1)
    assert run.records == []
