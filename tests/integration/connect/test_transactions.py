"""A source whose records and offsets are in one transaction: killed, frozen, or its broker killed, readers of committed records see each
record once."""

import asyncio
import contextlib
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.cli.conftest import Up
from tests.integration.connect.test_exactly_once import CONFIG, COUNT, TOPICS, expected, make_topics
from tests.support.connect_worker import Rest, WorkerProcess, records_of, worker_config
from tests.support.connectors import CollectingSink
from tests.support.patience import patient
from tests.support.programs import held_ports
from tests.support.seeds import seed
from tests.support.waiting import until

from busway import Admin, Consumer, Producer, TopicPartition
from busway_connect.server import ConnectServer

CREATION = {"connector_class": "CountingSource", "topics": "numbers", "topic_creation_default_partitions": "3"}


@contextlib.asynccontextmanager
async def worker(bus: str, support: str = "enabled") -> AsyncIterator[Rest]:
    """A worker in this process."""
    config = worker_config(bus, plugin_modules=("tests.support.connectors",), exactly_once_source_support=support)
    async with ConnectServer(config) as server:
        rest = Rest(server.url)
        try:
            yield rest
        finally:
            await rest.http.aclose()


async def counted(bus: str, *topics: str, isolation_level: str = "read_committed") -> Counter[int]:
    """How often each number is in the topics, for who reads committed records; each partition is in order."""
    counts: Counter[int] = Counter()
    for topic in topics or TOPICS:
        last: dict[int, int] = {}
        for record in await records_of(bus, topic, isolation_level):
            number = json.loads(record.value or b"")["payload"]["n"]
            assert last.get(record.partition, -1) <= number, f"{topic}-{record.partition} is out of order at {number}"
            last[record.partition] = number
            counts[number] += 1
    return counts


async def offset(rest: Rest) -> int:
    """How far it is; -1 before the first offset."""
    status, response = await rest.call("GET", "/connectors/count/offsets")
    return int(response["offsets"][0]["offset"]["n"]) if status == 200 and response["offsets"] else -1


async def reaches(rest: Rest, number: int) -> None:
    """Returns when the number is committed."""

    async def there() -> bool:
        return await offset(rest) >= number

    await until(there)


@pytest.mark.hostile
@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["poll", "interval"])
async def test_a_worker_killed_again_and_again_writes_each_record_once(bus: str, boundary: str) -> None:
    """SIGKILL at random moments, also between the records of a transaction and its commit; no header tells where a record came from."""
    chance = random.Random(seed(1))
    await make_topics(bus)
    for turn in range(5):
        async with WorkerProcess(bus, support="enabled") as process, process.rest() as rest:
            if turn == 0:
                more = {"transaction_boundary": boundary, "transaction_boundary_interval_ms": "60"}
                await rest.create("count", count=str(COUNT), **more, **CONFIG)
            await asyncio.sleep(chance.uniform(0.0, 0.3))  # the moment of the kill is what is tried out
            await process.kill()
    async with WorkerProcess(bus, support="enabled") as process, process.rest() as rest:
        await reaches(rest, COUNT - 1)
        assert await process.kill(signal.SIGTERM) == 0
    assert await counted(bus) == expected(COUNT)
    assert not any(record.headers for record in await records_of(bus, TOPICS[0]))


@pytest.mark.hostile
@pytest.mark.slow
async def test_what_a_frozen_worker_writes_when_it_wakes_is_never_visible(bus: str) -> None:
    """SIGSTOP in the middle of a transaction, past the start of its successor; awake, it stands by, and takes over when that is killed."""
    await make_topics(bus)
    async with WorkerProcess(bus, support="enabled") as frozen, frozen.rest() as rest:
        await rest.create("count", count=str(COUNT), **CONFIG)
        await reaches(rest, COUNT // 10)
        frozen.process.send_signal(signal.SIGSTOP)
        async with WorkerProcess(bus, support="enabled") as heir, heir.rest() as heirs:
            await reaches(heirs, COUNT // 2)
            frozen.process.send_signal(signal.SIGCONT)

            async def health(asked: Rest, status: int) -> bool:
                return (await asked.call("GET", "/health"))[0] == status

            await until(lambda: health(rest, 503))
            await reaches(heirs, COUNT - 1)
            assert await heirs.task_state("count") == "RUNNING"
            assert await counted(bus) == expected(COUNT)
            await heir.kill()
        await until(lambda: health(rest, 200))
        await reaches(rest, COUNT - 1)
        assert await frozen.kill(signal.SIGTERM) == 0
    assert await counted(bus) == expected(COUNT)


@pytest.mark.hostile
@pytest.mark.slow
async def test_the_broker_is_killed_and_each_line_of_a_file_is_there_once(tmp_path: Path) -> None:
    """SIGKILL under load, three times, the worker once beside it: every line, in order, once."""
    (port,) = held_ports(1)
    lines = [f"line {number}" for number in range(20_000)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    options = ("--override", f"listeners=PLAINTEXT://127.0.0.1:{port}", "-o", "group.min.session.timeout.ms=500")
    broker = await asyncio.to_thread(Up, tmp_path / "bus", *options, command="broker")
    bus = broker.bootstrap
    source = {"connector_class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines"}
    plain = {"value_converter": "StringConverter", "batch_size": "50", "exactly_once_support": "required"}
    try:
        process = WorkerProcess(bus, support="enabled", session_ms=5000)
        async with process as running, running.rest() as rest:
            await rest.create("count", **source, **plain)
            for _ in range(3):
                size = await committed_lines(bus)
                await until(lambda size=size: more_lines(bus, size))  # type: ignore[misc]
                await asyncio.to_thread(broker.stop, signal.SIGKILL)
                broker = await asyncio.to_thread(Up, tmp_path / "bus", *options, command="broker")
            await running.kill()
        whole = Consumer(bootstrap_servers=bus, isolation_level="read_committed")
        async with (
            WorkerProcess(bus, support="enabled", session_ms=5000),
            asyncio.timeout(patient(60)),
            whole as reader,
        ):
            await reader.assign([TopicPartition("lines", 0)])
            reader.seek_to_beginning(TopicPartition("lines", 0))
            async for record in reader:
                if record.value == lines[-1].encode():
                    break
        values = [(record.value or b"").decode() for record in await records_of(bus, "lines", "read_committed")]
        assert values == lines
    finally:
        await asyncio.to_thread(broker.stop, signal.SIGKILL)


async def committed_lines(bus: str) -> int:
    """How many lines are there."""
    return len(await records_of(bus, "lines", "read_committed"))


async def more_lines(bus: str, than: int) -> bool:
    """Whether there are more, or all."""
    return await committed_lines(bus) > min(than, 19_000)


async def test_a_source_sets_the_boundaries_itself(bus: str) -> None:
    """Behind every tenth number; what it takes back is not read, and it does not come again. What follows the last is not committed."""
    async with worker(bus) as rest:
        more = {"transaction_boundary": "CONNECTOR", "commits_each": "10", "aborts_at": "64"}
        await rest.create("count", count="95", **more, **CREATION)
        await reaches(rest, 89)
        await rest.call("PUT", "/connectors/count/stop")
        await rest.wait_for("count", None)
        kept = {number: times for number, times in expected(90).items() if not 60 <= number <= 64}
        assert await counted(bus, "numbers") == Counter(kept)
        await rest.call("PUT", "/connectors/count/resume")
        await until(lambda: _written(bus, 94))
        assert await offset(rest) == 89


async def test_a_pause_commits_what_is_open(bus: str) -> None:
    """Nothing waits for the interval while it is paused."""
    async with worker(bus) as rest:
        more = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": "3600000"}
        await rest.create("count", count="100", **more, **CREATION)
        await until(lambda: _written(bus, 99))
        assert await offset(rest) == -1
        await rest.call("PUT", "/connectors/count/pause")
        await reaches(rest, 99)
        assert await counted(bus, "numbers") == expected(100)


async def _written(bus: str, number: int) -> bool:
    return (await counted(bus, "numbers", isolation_level="read_uncommitted"))[number] > 0


async def test_a_transaction_that_somebody_ended_is_begun_again(bus: str) -> None:
    """The producer of the task, and of the worker, is taken over by hand: both ask whether it is their turn, and go on."""
    async with worker(bus) as rest, Admin(bus) as admin:
        await rest.create("count", count="1000000", **CREATION)
        await reaches(rest, 100)
        before = await offset(rest)
        await admin.abort_transaction("connect-cluster-count-0")
        await reaches(rest, before + 1000)
        await admin.abort_transaction("connect-cluster-connect-cluster")
        assert (await rest.call("PATCH", "/connectors/count/config", {"count": "0"}))[0] == 200
        await rest.call("PUT", "/connectors/count/stop")
        await rest.wait_for("count", None)
        assert await counted(bus, "numbers") == expected(await offset(rest) + 1)


async def test_offsets_of_a_stopped_source_are_set_in_a_transaction(bus: str) -> None:
    """Altered, it writes again from there; reset, from the beginning; also in the eyes of the next worker."""
    async with worker(bus) as rest:
        await rest.create("count", count="30", exactly_once_support="required", **CREATION)
        await reaches(rest, 29)
        await rest.call("PUT", "/connectors/count/stop")
        await rest.wait_for("count", None)
        change = {"offsets": [{"partition": {"counter": "one"}, "offset": {"n": 9}}]}
        assert (await rest.call("PATCH", "/connectors/count/offsets", change))[0] == 200
        assert await offset(rest) == 9
    async with worker(bus) as rest:
        assert await offset(rest) == 9
        await rest.call("PUT", "/connectors/count/resume")
        await reaches(rest, 29)
        await rest.call("PUT", "/connectors/count/stop")
        await rest.wait_for("count", None)
        assert (await rest.call("DELETE", "/connectors/count/offsets"))[0] == 200
        await rest.call("PUT", "/connectors/count/resume")
        await reaches(rest, 29)
    counts = Counter(
        json.loads(record.value or b"")["payload"]["n"] for record in await records_of(bus, "numbers", "read_committed")
    )
    assert counts == expected(30) + expected(30) + Counter(
        {number: times for number, times in expected(30).items() if number > 9}
    )


async def test_a_source_may_not_write_to_its_own_offsets(bus: str) -> None:
    """In Kafka Connect's words; its start would wait for its own transaction."""
    async with worker(bus) as rest:
        await rest.create("count", connector_class="CountingSource", count="9", topics="connect-offsets")
        await rest.wait_for("count", "FAILED")
        _, status = await rest.call("GET", "/connectors/count/status")
        words = "Source tasks may not produce to their own offsets topics when exactly-once support is enabled"
        assert words in status["tasks"][0]["trace"]


async def test_a_worker_says_whether_it_is_enabled(bus: str) -> None:
    """A connector that requires it is refused by a worker that is preparing, and its sources write as ever."""
    async with worker(bus, "preparing") as rest:
        status, response = await rest.call(
            "PUT", "/connectors/x/config", {"connector.class": "CountingSource", "count": "0", "topics": "numbers", "exactly.once.support": "required"}
        )  # fmt: skip
        assert status == 400
        assert "This worker does not have exactly-once source support enabled." in response["message"]
        await rest.create("count", count="9", **CREATION)
        await reaches(rest, 8)
        async with Admin(bus) as admin:
            assert [transaction.transactional_id for transaction in await admin.list_transactions()] == [
                "connect-cluster-connect-cluster"
            ]
    async with worker(bus) as rest:
        status, response = await rest.call(
            "PUT", "/connectors/x/config", {"connector.class": "MisbehavingSource", "how": "exit", "at": "stop", "exactly.once.support": "required"}
        )  # fmt: skip
        assert status == 400
        assert "The connector does not implement the API required for preflight validation" in response["message"]
        assert await counted(bus, "numbers") == expected(9)


async def test_a_sink_reads_committed_records_where_it_is_told_to(bus: str) -> None:
    """`consumer.override.isolation.level`; else it reads all, as in Kafka."""
    for name in ("all", "committed"):
        CollectingSink.collected.pop(name, None)
    async with worker(bus) as rest, Producer(bus, transactional_id="mine") as producer:
        settings = {"connector_class": "CollectingSink", "topics": "words", "value_converter": "StringConverter"}
        with contextlib.suppress(LookupError):
            async with producer.transaction():
                await producer.send_and_wait("words", b"taken back")
                raise LookupError
        async with producer.transaction():
            await producer.send("words", b"kept")
        await rest.create("all", **settings)
        await rest.create("committed", consumer_override_isolation_level="read_committed", **settings)

        async def collected() -> bool:
            return all("kept" in CollectingSink.collected.get(name, []) for name in ("all", "committed"))

        await until(collected)
    assert CollectingSink.collected["all"] == ["taken back", "kept"]
    assert CollectingSink.collected["committed"] == ["kept"]
