"""The connector in a worker of its own process, on the real bus: killed again and again, nothing is lost or doubled."""

import asyncio
import json
import random
import signal
from collections import Counter
from typing import Any

import psycopg
import pytest
from tests.support.connect_worker import Rest, WorkerProcess, records_of
from tests.support.postgres import Postgres
from tests.support.postgres_source import execute, settings
from tests.support.seeds import seed
from tests.support.waiting import until

from busway import Record
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ROWS = 3000
TURNS = 5
EVENTS_MAX = 15_000
"""What a worker catches up with in time on a busy machine."""


class Load:
    """Changes a table until it is stopped, and counts the events that this makes."""

    def __init__(self, server: Postgres, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.events = 0
        self.stopped = False

    def run(self) -> None:
        """In a thread."""
        with psycopg.connect(self._server.dsn) as connection:
            while not self.stopped and self.events < EVENTS_MAX:
                for _ in range(self._chance.randrange(1, 4)):
                    self.events += self._change(connection)
                connection.commit()

    def _change(self, connection: psycopg.Connection) -> int:
        first_id = self._chance.randrange(ROWS)
        statement, values = self._chance.choice(
            (
                ("UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s", (first_id, first_id + 10)),
                ("DELETE FROM t WHERE id = %s", (first_id,)),
                ("INSERT INTO t SELECT n, 0 FROM generate_series(%s::int, %s::int) n ON CONFLICT DO NOTHING", (first_id, first_id + 5)),
            )
        )  # fmt: skip
        return connection.execute(statement, values).rowcount


def _value(record: Record) -> Any:
    return None if record.value is None else json.loads(record.value)


@pytest.mark.parametrize("support", ["disabled", "enabled"])
async def test_killed_under_load_every_change_is_there_once(database: Postgres, support: str) -> None:
    """SIGKILL in the snapshot and in the stream while the table changes: the state at the end is the database's, each change came once."""
    chance = random.Random(seed(1))
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        f"INSERT INTO t SELECT n, 0 FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE zz (a int PRIMARY KEY)",
    )
    config = {
        **settings(database, max_batch_size="50", snapshot_fetch_size="50", max_queue_size="100"),
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "100",
    }
    isolation_level = "read_committed" if support == "enabled" else "read_uncommitted"
    async with LocalCluster(properties={"group.min.session.timeout.ms": "100"}) as cluster:
        bus = cluster.bootstrap_servers
        load = Load(database, chance)
        loading: asyncio.Task[None] | None = None
        try:
            for turn in range(TURNS):
                flush_ms = chance.choice([20, 200])
                async with WorkerProcess(bus, flush_ms=flush_ms, support=support) as worker, worker.rest() as rest:
                    if turn == 0:
                        await rest.create("pg", **config)
                        # Before the position of the snapshot is stored, a change is part of the next snapshot, and no event.
                        await until(lambda rest=rest: _begun(rest))  # type: ignore[misc]
                    if turn == 1:
                        loading = asyncio.create_task(asyncio.to_thread(load.run))
                    await asyncio.sleep(chance.uniform(0.0, 0.8))  # the moment of the kill is what is tried out
                    await worker.kill()
        finally:
            load.stopped = True
            if loading is not None:
                await loading
        async with WorkerProcess(bus, support=support) as worker, worker.rest() as rest:
            execute(database, "INSERT INTO zz VALUES (1)")
            await until(lambda: _finished(rest, bus, isolation_level))
            # what was sent before that row, to other partitions, is written first
            assert await worker.kill(signal.SIGTERM) == 0
        records = await records_of(bus, "p.public.t", isolation_level)
    _check(records, load, database)


async def _begun(rest: Rest) -> bool:
    return bool((await rest.call("GET", "/connectors/pg/offsets"))[1].get("offsets"))


async def _finished(rest: Rest, bootstrap: str, isolation_level: str) -> bool:
    code, status = await rest.call("GET", "/connectors/pg/status")
    if code == 409:  # on a busy machine the worker may lose its turn, and gets it back
        return False
    assert code == 200, status
    assert status["connector"]["state"] != "FAILED", status
    return any(_value(record)["op"] == "c" for record in await records_of(bootstrap, "p.public.zz", isolation_level))


async def test_a_worker_of_a_test_that_fails_does_not_outlive_it() -> None:
    """Whatever ends the block."""
    started: list[WorkerProcess] = []

    async def fails() -> None:
        async with WorkerProcess("127.0.0.1:1") as worker:
            started.append(worker)
            raise AssertionError("a test fails")

    with pytest.raises(AssertionError, match="a test fails"):
        await fails()
    assert started[0].process.returncode is not None


def _check(records: list[Record], load: Load, server: Postgres) -> None:
    state: dict[int, dict[str, Any]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for record in records:
        value = _value(record)
        if value is None:
            continue
        row = value["after"] or value["before"]
        seen[value["op"], value["source"]["lsn"] if value["op"] != "r" else 0, row["id"]] += 1
        if value["after"] is None:
            state.pop(row["id"], None)
        else:
            state[row["id"]] = row
    assert not {place: count for place, count in seen.items() if count > 1}
    assert sum(1 for op, *_ in seen if op != "r") == load.events
    with psycopg.connect(server.dsn) as connection:
        rows = {key: {"id": key, "v": v} for key, v in connection.execute("SELECT id, v FROM t")}
    assert state == rows
