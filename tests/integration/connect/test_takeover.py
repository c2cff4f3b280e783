"""What a worker leaves behind that is killed: its sinks go on soon, its sources confirm nothing too early."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.connect_worker import Rest, WorkerProcess
from tests.support.connectors import CountingSource
from tests.support.patience import patient
from tests.support.waiting import until

from busway import Admin, Producer

SINK = {
    "connector_class": "JdbcSink",
    "topics": "people",
    "insert_mode": "upsert",
    "primary_key_mode": "record_value",
    "primary_key_fields": "id",
    "schema_evolution": "basic",
    "value_converter": "JsonConverter",
    "value_converter_schemas_enable": "false",
}


@pytest.mark.slow
async def test_a_sink_goes_on_when_its_workers_session_ends(bus: str, tmp_path: Path) -> None:
    """Not 45 seconds later: the dead consumer's session is as long as the dead worker's, 0.6 s here."""
    file = tmp_path / "out.db"

    async def there(count: int) -> bool:
        if not file.exists():
            return False
        with sqlite3.connect(file) as database:
            if not database.execute("SELECT name FROM sqlite_master").fetchall():
                return False
            return bool(database.execute("SELECT count(*) FROM people").fetchone() == (count,))

    async with Producer(bus) as producer:
        await producer.send_and_wait("people", b'{"id": 1}')
        async with WorkerProcess(bus) as first, first.rest() as rest:
            await rest.create("to", connection_url=f"sqlite:///{file}", **SINK)
            await until(lambda: there(1))
            await first.kill()
        await producer.send_and_wait("people", b'{"id": 2}')
        async with WorkerProcess(bus) as second, second.rest() as rest:
            await until(lambda: there(2))
            assert 'name="partitions",type="sink"} 1.0' in (await rest.http.get("/metrics")).text


async def _reads(name: str, more: int) -> None:
    """Returns after the source was read so often again: by then all that was due has been done."""
    wanted = CountingSource.reads[name] + more
    async with asyncio.timeout(patient(20)):
        while CountingSource.reads[name] < wanted:
            await asyncio.sleep(0.01)


class HeldProducer(Producer):
    """Sends as ever, and reports no acknowledgement before the gate is open."""

    gate: ClassVar[asyncio.Event]

    async def send(self, *args: Any, **options: Any) -> "asyncio.Future[Any]":
        waiter = await super().send(*args, **options)
        return asyncio.ensure_future(self._told(waiter))

    async def _told(self, waiter: "asyncio.Future[Any]") -> Any:
        await self.gate.wait()
        return await waiter


async def test_nothing_is_confirmed_before_its_produce_is_acknowledged(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While acknowledgements are held back the source gets no commit, and no offset is stored."""
    name = "unacknowledged"
    CountingSource.committed_offsets.pop(name, None)
    HeldProducer.gate = asyncio.Event()
    monkeypatch.setattr("busway_connect.runtime.acknowledged.Producer", HeldProducer)
    await rest.create(name, connector_class="CountingSource", count="20", topics="numbers")
    await rest.wait_for(name, "RUNNING")
    await _reads(name, 12)  # 12 reads of 20 ms each are more than the flush interval of 50 ms
    assert name not in CountingSource.committed_offsets
    assert (await rest.call("GET", f"/connectors/{name}/offsets"))[1] == {"offsets": []}
    HeldProducer.gate.set()
    await until(lambda: _confirmed(name, 19))


async def _confirmed(name: str, number: int) -> bool:
    return CountingSource.committed_offsets.get(name, [])[-1:] == [number]


async def test_nothing_is_confirmed_before_its_offset_is_stored(rest: Rest, bus: str) -> None:
    """The offsets' topic takes nothing: the task fails, and the source never got a commit."""
    name = "unstored"
    CountingSource.committed_offsets.pop(name, None)
    async with Admin(bus) as admin:
        await admin.alter_configs("connect-offsets", {"max.message.bytes": "1"})
        await rest.create(name, connector_class="CountingSource", count="20", topics="numbers")

        async def over() -> bool:
            return await rest.task_state(name) in {"FAILED", "RESTARTING"}

        await until(over)
        assert name not in CountingSource.committed_offsets
        await admin.alter_configs("connect-offsets", {"max.message.bytes": "1000000"})
    await rest.call("POST", f"/connectors/{name}/restart?includeTasks=true")
    await until(lambda: _confirmed(name, 19))
