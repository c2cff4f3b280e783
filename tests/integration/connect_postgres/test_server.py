"""The server's side: what it may forget, what it is refused for, how it goes away and comes back."""

import asyncio
import threading

import psycopg
import pytest
from tests.support.patience import patient
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, changes, execute, settings

from busway_connect.connector import ConfigInvalid, Retriable
from busway_connect.postgres.handover import Handover
from busway_connect.postgres.positions import lsn_number
from busway_connect.postgres.slots import PositionLost

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SECONDS = patient(20.0)


def _one(server: Postgres, query: str) -> object:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def _confirmed(server: Postgres) -> int:
    return lsn_number(str(_one(server, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots")))


def _table(server: Postgres) -> None:
    execute(server, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")


async def test_the_server_keeps_all_that_is_not_stored(database: Postgres) -> None:
    """What was read and not confirmed comes again, even after the server wrote much that is not captured."""
    _table(database)
    execute(database, "CREATE TABLE other (id int)")
    config = settings(
        database, table_include_list="public.t", publication_autocreate_mode="filtered", heartbeat_interval_ms="0",
        status_update_interval_ms="10",
    )  # fmt: skip
    async with RunningSource(config) as run:
        (row,) = await run.read_count(1)
        begun = _confirmed(database)
        for number in range(30):
            execute(database, f"INSERT INTO other VALUES ({number})")
            await run.source.read() if number % 10 == 0 else None
        assert _confirmed(database) == begun
    execute(database, "INSERT INTO t VALUES (2)")
    async with RunningSource(config, row.offset) as run:
        assert [record.key for record in await run.read_count(1)] == [{"id": 2}]


async def test_a_quiet_table_lets_the_server_forget_its_log(database: Postgres) -> None:
    """Others write; a heartbeat brings an offset, and once that is stored the slot moves. A restart goes on from there."""
    _table(database)
    execute(database, "CREATE TABLE other (id int)")
    config = settings(
        database, table_include_list="public.t", publication_autocreate_mode="filtered", heartbeat_interval_ms="1"
    )
    async with RunningSource(config) as run:
        await run.read_count(1)
        execute(database, "INSERT INTO other SELECT generate_series(1, 1000)")
        written = lsn_number(str(_one(database, "SELECT pg_current_wal_lsn()::text")))
        read = await run.read_until(
            lambda records: any(int(str(record.offset.get("lsn_commit", 0))) >= written for record in records)
        )
        assert read[-1].topic == "__debezium-heartbeat.p"
        assert read[-1].key == {"serverName": "p"}
        await run.source.committed(read[-1].offset)
        while _confirmed(database) < written:
            await run.source.read()
    execute(database, "INSERT INTO t VALUES (2)")
    async with RunningSource(config, read[-1].offset) as run:
        assert [record.key for record in await run.read_count(1)] == [{"id": 2}]


@pytest.mark.parametrize("how", ["gone", "made again"])
async def test_a_lost_slot_is_refused_with_the_remedy(database: Postgres, how: str) -> None:
    """With an offset stored, a slot that is gone or was made again ends the connector; when_needed takes a new snapshot."""
    _table(database)
    config = settings(database)
    async with RunningSource(config) as run:
        await run.read_count(1)
        execute(database, "INSERT INTO t VALUES (2)")
        offset = (await run.read_count(2))[-1].offset
    while _one(database, "SELECT active FROM pg_replication_slots"):
        await asyncio.sleep(0)
    execute(database, "SELECT pg_drop_replication_slot('debezium')", "INSERT INTO t VALUES (3)")
    if how == "made again":
        execute(database, "SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    with pytest.raises(PositionLost, match=r"snapshot\.mode=when_needed"):
        async with RunningSource(config, offset):
            pass
    async with RunningSource({**config, "snapshot.mode": "when_needed"}, offset) as run:
        records = await run.read_count(3)
        assert [(record.key["id"], record.value["op"]) for record in records] == [(1, "r"), (2, "r"), (3, "r")]
        old, new = run.source.position(offset), run.source.position(records[0].offset)
        assert old is not None
        assert new is not None
        assert list(new) > list(old), "the rows of the new snapshot would be taken for records that are there"


async def test_publication_that_is_missing_or_lacks_a_table_is_refused(database: Postgres) -> None:
    """The text names the statement that mends it."""
    _table(database)
    execute(database, "CREATE TABLE u (id int PRIMARY KEY)")
    config = settings(database, publication_autocreate_mode="disabled")
    with pytest.raises(ConfigInvalid, match="CREATE PUBLICATION dbz_publication"):
        async with RunningSource(config):
            pass
    execute(database, "CREATE PUBLICATION dbz_publication FOR TABLE t")
    with pytest.raises(ConfigInvalid, match=r"ADD TABLE public\.u"):
        async with RunningSource(config):
            pass
    execute(database, "ALTER PUBLICATION dbz_publication ADD TABLE u")
    async with RunningSource(config) as run:
        await run.read_count(1)


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [("database.dbname", "nowhere", "database.dbname"), ("database.user", "nobody", "database.user")],
)
async def test_what_the_server_refuses_at_login_names_the_setting(
    database: Postgres, setting: str, value: str, named: str
) -> None:
    """A database or user that is not there is a wrong setting, not something to try again."""
    with pytest.raises(ConfigInvalid) as refused:
        async with RunningSource({**settings(database), setting: value}):
            pass
    assert list(refused.value.errors) == [named]


async def test_a_slot_that_another_reads_is_tried_again(database: Postgres) -> None:
    """After a crash the server may hold the slot for a while: that passes."""
    _table(database)
    config = settings(database, slot_max_retries="1", slot_retry_delay_ms="1")
    async with RunningSource(config) as first:
        offset = (await first.read_count(1))[-1].offset
        execute(database, "INSERT INTO t VALUES (2)")
        await first.read_count(2)
        with pytest.raises(Retriable, match="is active"):
            async with RunningSource(config, offset) as second:
                await second.read_count(1)


async def test_a_server_that_dies_is_retriable_and_nothing_is_lost(database: Postgres) -> None:
    """Killed under the stream and started again, it goes on behind the offset."""
    _table(database)
    config = settings(database)
    async with RunningSource(config) as run:
        await run.read_count(1)
        execute(database, "INSERT INTO t VALUES (2)")
        offset = (await run.read_count(2))[-1].offset
        execute(database, "INSERT INTO t VALUES (3)")
        database.kill()
        with pytest.raises(Retriable):
            await run.read_until(lambda _: False)
    with pytest.raises(Retriable):
        async with RunningSource(config, offset):
            pass
    database.start()
    execute(database, "INSERT INTO t VALUES (4)")
    async with RunningSource(config, offset) as run:
        assert [record.key for record in await run.read_count(2)] == [{"id": 3}, {"id": 4}]


async def test_a_slow_reader_keeps_its_connection(database: Postgres) -> None:
    """No task reads for longer than the server's patience while the queue is full; the connection answers all the same."""
    _table(database)
    execute(database, "ALTER ROLE postgres SET wal_sender_timeout = '700ms'")
    try:
        config = settings(database, max_queue_size="1", max_batch_size="100", status_update_interval_ms="100")
        async with RunningSource(config) as run:
            await run.read_count(1)
            sender = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'"
            while (pid := _one(database, sender)) is None:
                await run.source.read()
            execute(database, "INSERT INTO t SELECT generate_series(2, 5000)")
            replies = (
                f"SELECT count(*) FROM pg_stat_replication WHERE reply_time > now() - interval '600ms' AND pid = {pid}"
            )
            began = str(_one(database, "SELECT clock_timestamp()::text"))
            while not _one(database, f"SELECT clock_timestamp() > '{began}'::timestamptz + interval '1500ms'"):
                assert _one(database, f"SELECT 1 FROM pg_stat_replication WHERE pid = {pid}")
            assert _one(database, replies) == 1
            assert len(await run.read_count(5000)) == 5000
            assert _one(database, sender) == pid
    finally:
        execute(database, "ALTER ROLE postgres RESET wal_sender_timeout")


async def test_large_rows_wait_in_the_database(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of 100 kB no more than max.queue.size.in.bytes allows are read ahead, in the snapshot and in the stream; all come."""
    full = threading.Event()

    class Watched(Handover):
        """Tells when it is full."""

        def _has_room(self) -> bool:
            has_room = super()._has_room()
            if not has_room:
                full.set()
            return has_room

    monkeypatch.setattr("busway_connect.postgres.connector.Handover", Watched)
    rows = "INSERT INTO large SELECT n, repeat('x', 100000) FROM generate_series({}, {}) n"
    execute(database, "CREATE TABLE large (id int PRIMARY KEY, v text)", rows.format(1, 20))
    async with RunningSource(settings(database, max_queue_size_in_bytes="300000")) as run:

        async def few_then(count: int) -> None:
            assert await asyncio.to_thread(full.wait, SECONDS)
            assert run.source._handover is not None
            assert 0 < run.source._handover.waiting <= 6
            assert len(await run.read_count(count)) == count

        await few_then(20)
        full.clear()
        execute(database, rows.format(21, 40))
        await few_then(40)


async def test_the_slot_goes_with_the_connector_when_asked(database: Postgres) -> None:
    """`slot.drop.on.stop`."""
    _table(database)
    async with RunningSource(settings(database, slot_drop_on_stop="true")) as run:
        await run.read_count(1)
        assert _one(database, "SELECT count(*) FROM pg_replication_slots") == 1
    assert _one(database, "SELECT count(*) FROM pg_replication_slots") == 0


@pytest.mark.parametrize(
    ("mode", "first", "then"),
    [
        ("initial", [(1, "r"), (2, "c")], [(3, "c")]),
        ("no_data", [(2, "c")], [(3, "c")]),
        ("always", [(1, "r"), (2, "c")], [(1, "r"), (2, "r"), (3, "r"), (3, "c")]),
        ("initial_only", [(1, "r")], []),
    ],
)
async def test_snapshot_modes(
    database: Postgres, mode: str, first: list[tuple[int, str]], then: list[tuple[int, str]]
) -> None:
    """What a first start and a second one hand over."""
    _table(database)
    config = settings(database, snapshot_mode=mode)
    async with RunningSource(config) as run:
        if mode != "no_data":
            await run.read_count(1)
        execute(database, "INSERT INTO t VALUES (2)")
        records = await run.read_count(len(first))
        assert [(record.key["id"], record.value["op"]) for record in records] == first
    execute(database, "INSERT INTO t VALUES (3)")
    async with RunningSource(config, records[-1].offset) as run:
        again = await run.read_count(len(then))
        assert [(record.key["id"], record.value["op"]) for record in again] == then
        assert not changes(list(await run.source.read()))


@pytest.mark.parametrize("pace", ["one by one", "at once"])
async def test_tables_that_nobody_captures_do_not_hold_the_log(database: Postgres, pace: str) -> None:
    """The publication of all tables brings their changes too: however busy they are, heartbeats say how far all was read."""
    _table(database)
    execute(database, "CREATE TABLE other (id int)")
    config = settings(database, table_include_list="public.t", heartbeat_interval_ms="1", max_batch_size="10")
    async with RunningSource(config) as run:
        await run.read_count(1)
        begun = lsn_number(str(_one(database, "SELECT pg_current_wal_insert_lsn()::text")))
        newest = 0
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            if pace == "at once":
                connection.execute(
                    "DO 'BEGIN FOR i IN 1..3000 LOOP INSERT INTO other VALUES (i); COMMIT; END LOOP; END'"
                )
            for number in range(10):
                if newest > begun:
                    break
                if pace == "one by one":
                    connection.execute(f"INSERT INTO other VALUES ({number})")
                beats = await run.source.read()
                newest = max([newest, *(int(beat.offset["lsn_commit"]) for beat in beats)])
        assert newest > begun


async def _told(config: dict[str, str], database: Postgres, *more: str, count: int) -> list[tuple[str, str, object]]:
    """Topic, operation and the row after it of the snapshot's records, and of those that statements bring."""
    async with RunningSource(config) as run:
        execute(database, *more)
        records = await run.read_count(count)
        run.records += await run.source.read()
        assert len(changes(run.records)) == count
    return [(record.topic, record.value["op"], record.value["after"]) for record in records]


@pytest.mark.parametrize("via_root", [False, True])
async def test_a_row_of_a_partitioned_table_comes_once(database: Postgres, via_root: bool) -> None:
    """Root and leaves are captured: the snapshot tells it under the name under which its changes come."""
    execute(
        database,
        "CREATE TABLE events (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE events_low PARTITION OF events FOR VALUES FROM (0) TO (10)",
        "INSERT INTO events VALUES (1)",
        f"CREATE PUBLICATION dbz_publication FOR ALL TABLES WITH (publish_via_partition_root = {str(via_root).lower()})",
    )
    topic = "p.public.events" if via_root else "p.public.events_low"
    config = settings(database, publication_autocreate_mode="disabled")
    rows = await _told(config, database, "INSERT INTO events VALUES (2)", count=2)
    assert rows == [(topic, "r", {"id": 1}), (topic, "c", {"id": 2})]
    rows = await _told({**config, "snapshot.mode": "initial_only"}, database, count=2)
    assert rows == [("p.public.events", "r", {"id": 1}), ("p.public.events", "r", {"id": 2})]


async def test_what_a_publication_keeps_back_is_not_in_the_snapshot(database: Postgres) -> None:
    """Its column lists and row filters hold for the rows that are there as for those that come."""
    execute(
        database,
        "CREATE TABLE people (id int PRIMARY KEY, name text, ssn text)",
        "INSERT INTO people VALUES (1, 'a', '1-1'), (20, 'b', '2-2')",
        "CREATE PUBLICATION dbz_publication FOR TABLE people (id, name) WHERE (id > 10)",
    )
    config = settings(database, publication_autocreate_mode="disabled", table_include_list="public.people")
    more = ("INSERT INTO people VALUES (2, 'c', '3-3')", "INSERT INTO people VALUES (30, 'd', '4-4')")
    rows = await _told(config, database, *more, count=2)
    assert rows == [
        ("p.public.people", "r", {"id": 20, "name": "b"}),
        ("p.public.people", "c", {"id": 30, "name": "d"}),
    ]
