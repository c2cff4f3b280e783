"""A slot that another still reads, as after a kill: it is waited for, not for ever, and a connector that waits can be stopped."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.support.postgres import Postgres
from tests.support.postgres_source import RunningSource, execute, settings

from busway_connect.connector import Retriable
from busway_connect.postgres.replication import ReplicationConnection

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@contextmanager
def held(server: Postgres) -> Iterator[int]:
    """The slot is made and read by another connection; the PID of its WAL sender."""
    execute(server, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    reader = ReplicationConnection(server.dsn)
    try:
        reader.create_slot("debezium", "pgoutput")
        reader.start("debezium", 0, "dbz_publication")
        with psycopg.connect(server.dsn) as connection:
            row = connection.execute("SELECT active_pid FROM pg_replication_slots").fetchone()
        assert row is not None
        yield row[0]
    finally:
        reader.close()


class Lines(logging.Handler):
    """What the connector writes to the log, and when the first line of it has come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._loop.call_soon_threadsafe(self.first.set)


@pytest.fixture
async def log(caplog: pytest.LogCaptureFixture) -> Lines:
    """Of `busway.connect.postgres`."""
    caplog.set_level(logging.INFO, "busway.connect.postgres")
    lines = Lines()
    logger = logging.getLogger("busway.connect.postgres")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


async def test_a_slot_that_is_still_read_is_waited_for(database: Postgres, log: Lines) -> None:
    """As after a kill, when the server has not noticed: the log says whom it waits for, and the changes come when that has ended."""
    with held(database) as pid:
        execute(database, "INSERT INTO t VALUES (1)")

        async def changed() -> list[object]:
            async with RunningSource(settings(database, snapshot_mode="no_data")) as run:
                return [record.key for record in await run.read_count(1)]

        reading = asyncio.ensure_future(changed())
        await asyncio.wait([reading, asyncio.ensure_future(log.first.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not reading.done()
        assert "debezium" in log.lines[0]
        assert f"PID {pid}" in log.lines[0]
    assert await reading == [{"id": 1}]


async def test_a_connector_that_waits_for_its_slot_is_stopped(database: Postgres, log: Lines) -> None:
    """Its thread ends while the other still reads."""
    with held(database):
        async with RunningSource(settings(database)) as run:
            await log.first.wait()
            assert await run.source.read() == []
            thread = run.source._thread
        assert thread is not None
        assert not thread.is_alive()
    assert not [line for line in log.lines if "did not end" in line]


async def test_a_slot_that_another_keeps_is_refused_with_the_remedy(database: Postgres, log: Lines) -> None:
    """After `slot.max.retries` times `slot.retry.delay.ms`, with no more lines in the log than retries."""
    with held(database) as pid:
        config = settings(database, slot_max_retries="3", slot_retry_delay_ms="20")
        with pytest.raises(
            Retriable, match=rf"slot debezium is active for PID {pid}.*pg_terminate_backend\({pid}\)"
        ) as refused:
            async with RunningSource(config) as run:
                await run.read_until(lambda _: False)
        for word in ("slot.name", "slot.max.retries=3", "slot.retry.delay.ms=20", "wal_sender_timeout (1min)"):
            assert word in str(refused.value)
        assert 1 <= len(log.lines) <= 3


async def test_a_slot_in_use_is_refused_at_once_where_that_is_asked_for(database: Postgres, log: Lines) -> None:
    """`slot.max.retries=0`: the connector does not start."""
    with held(database), pytest.raises(Retriable, match="is active for PID"):
        async with RunningSource(settings(database, slot_max_retries="0")):
            pass
    assert log.lines == []
