"""What is killed goes on: nothing lost, nothing doubled, at whatever record it was killed.

The runtime is played by `Topics`: it drops what it has already, by `Source.position`, and stores offsets late, as the worker does.
"""

import random
from collections import defaultdict
from typing import Any

import psycopg
import pytest
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, changes, execute, settings
from tests.support.seeds import seed

from busway_connect.connector import Offset, SourceRecord

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
RUNS = 4


class Topics:
    """What of a source's records has arrived, and the offset stored for it."""

    def __init__(self, source_of: random.Random) -> None:
        self._random = source_of
        self._last: dict[str, list[Any]] = {}
        self.records: list[SourceRecord] = []
        self.offset: Offset | None = None

    def take(self, run: RunningSource, records: list[SourceRecord]) -> None:
        """Keep what is new; store the offset of one of these records or of none."""
        for record in records:
            position = run.source.position(record.offset)
            assert position is not None
            last = self._last.get(record.topic)
            if last is None or last < list(position):
                self._last[record.topic] = list(position)
                self.records.append(record)
        stored = self._random.choice([None, *records[-50:]]) if records else None
        if stored is not None:
            self.offset = stored.offset

    def state(self) -> dict[str, dict[Any, Any]]:
        """The rows that are there when all records are applied, by topic."""
        state: dict[str, dict[Any, Any]] = defaultdict(dict)
        for record in self.records:
            if record.topic.startswith("__"):
                continue
            key = tuple(record.key.values())
            if record.value is None or record.value["after"] is None:
                state[record.topic].pop(key, None)
            else:
                state[record.topic][key] = record.value["after"]
        return state

    def operations(self) -> dict[tuple[str, str, int, Any], int]:
        """How often each change came: by topic, operation, LSN and key."""
        counts: dict[tuple[str, str, int, Any], int] = defaultdict(int)
        for record in self.records:
            if record.value is not None and not record.topic.startswith("__"):
                source = record.value["source"]
                lsn = 0 if record.value["op"] == "r" else source["lsn"]
                counts[record.topic, record.value["op"], lsn, tuple(record.key.values())] += 1
        return counts


def _rows(server: Postgres, table: str) -> dict[Any, Any]:
    with psycopg.connect(server.dsn) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return {row[0]: dict(zip(names, row, strict=True)) for row in cursor}


async def _part(topics: Topics, config: dict[str, str], most: int) -> None:
    """One life of a process: it is killed after so many records."""
    async with RunningSource(config, topics.offset) as run:
        while most > 0:
            records = [*await run.source.read()][:most]
            most = most - len(records) if records else 0  # nothing more comes: killed while it is idle
            topics.take(run, records)
            if topics.offset is not None:
                await run.source.committed(topics.offset)


async def _rest(topics: Topics, config: dict[str, str], server: Postgres) -> None:
    execute(server, "INSERT INTO zz VALUES (1)")
    async with RunningSource(config, topics.offset) as run:
        while not any(record.topic == "p.public.zz" and record.value["op"] == "c" for record in topics.records):
            topics.take(run, list(await run.source.read()))


@pytest.mark.parametrize("run", range(RUNS))
async def test_killed_at_any_record_of_the_stream_nothing_is_lost_or_doubled(database: Postgres, run: int) -> None:
    """Random changes, also of keys and many rows at once, with kills between any two records: each change comes exactly once."""
    chance = random.Random(f"{seed(1)} {run}")
    execute(database, "CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE zz (a int PRIMARY KEY)")
    config = settings(
        database, snapshot_mode="no_data", max_batch_size="7", heartbeat_interval_ms=str(chance.choice([0, 1, 50]))
    )
    topics = Topics(chance)
    async with RunningSource(config):
        pass  # makes the slot
    made = 0
    with psycopg.connect(database.dsn) as connection:
        for _ in range(12):
            for _ in range(chance.randrange(1, 4)):
                for _ in range(chance.randrange(1, 6)):
                    made += _change(connection, chance)
                connection.commit()
            await _part(topics, config, chance.randrange(0, 40))
    await _rest(topics, config, database)
    counts = topics.operations()
    assert set(counts.values()) == {1}
    assert sum(1 for topic, *_ in counts if topic == "p.public.t") == made
    expected = _rows(database, "t")
    assert {key[0]: row for key, row in topics.state()["p.public.t"].items()} == expected


def _change(connection: psycopg.Connection, chance: random.Random) -> int:
    """A random change; how many events it makes."""
    kind = chance.randrange(5)
    first_id = chance.randrange(1000)
    if kind == 0:
        return connection.execute(
            "INSERT INTO t SELECT n, %s FROM generate_series(%s::int, %s::int) n ON CONFLICT (id) DO NOTHING",
            (first_id, first_id, first_id + chance.randrange(20)),
        ).rowcount
    if kind == 1:
        return connection.execute("UPDATE t SET v = v + 1 WHERE id %% 7 = %s", (first_id % 7,)).rowcount
    if kind == 2:
        return connection.execute("DELETE FROM t WHERE id %% 11 = %s", (first_id % 11,)).rowcount
    if kind == 3:
        lowest = connection.execute("SELECT COALESCE(min(id), 0) FROM t").fetchone()
        assert lowest is not None
        # A changed key is two events: the row goes and comes.
        return (
            2 * connection.execute("UPDATE t SET id = %s WHERE id = (SELECT max(id) FROM t)", (lowest[0] - 1,)).rowcount
        )
    return connection.execute("INSERT INTO t VALUES (%s, 0) ON CONFLICT (id) DO NOTHING", (1000 + first_id,)).rowcount


@pytest.mark.parametrize("run", range(RUNS))
async def test_killed_at_any_row_of_the_snapshot_the_state_is_exact(database: Postgres, run: int) -> None:
    """Kills in the snapshot while rows change: no row comes twice as `r`, no change twice or never, and the state at the end is exact."""
    chance = random.Random(f"{seed(1)} {run}")
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE u (name text, day date, v int, PRIMARY KEY (name, day))",
        "CREATE TABLE zz (a int PRIMARY KEY)",
        "INSERT INTO t SELECT n * 3, 0 FROM generate_series(1, 300) n",
        "INSERT INTO u SELECT chr(60 + n % 100) || 'É' || n, '2000-01-01'::date + n, 0 FROM generate_series(1, 300) n",
    )
    config = settings(database, max_batch_size="10", snapshot_fetch_size="10")
    topics = Topics(chance)
    with psycopg.connect(database.dsn) as connection:
        for _ in range(6):
            await _part(topics, config, chance.randrange(0, 160))
            for _ in range(chance.randrange(4)):
                _change(connection, chance)
                connection.execute(
                    "UPDATE u SET v = v + 1 WHERE v = 0 AND day > %s", (f"2000-0{chance.randrange(1, 9)}-01",)
                )
                connection.execute("DELETE FROM u WHERE name LIKE %s", (f"%{chance.randrange(300)}",))
            connection.commit()
    await _rest(topics, config, database)
    assert set(topics.operations().values()) == {1}
    state = topics.state()
    assert {key[0]: row for key, row in state["p.public.t"].items()} == _rows(database, "t")
    names = {key[0]: row["v"] for key, row in state["p.public.u"].items()}
    assert names == {name: row["v"] for name, row in _rows(database, "u").items()}


async def test_records_that_follow_an_undisturbed_start_have_no_gap(database: Postgres) -> None:
    """Rows that come while the snapshot is taken come in the stream, once."""
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 100)")
    async with RunningSource(settings(database, snapshot_fetch_size="1", max_queue_size="1")) as run:
        # The snapshot waits behind its first rows, for no task reads.
        execute(database, "INSERT INTO t SELECT generate_series(101, 200)")
        records = await run.read_count(200)
    assert [(record.key["id"], record.value["op"]) for record in records] == [
        *((number, "r") for number in range(1, 101)),
        *((number, "c") for number in range(101, 201)),
    ]
    assert not [record for record in changes(run.records) if record not in records]
