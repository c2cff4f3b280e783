"""A source's records are in the topics exactly once, however the worker ends."""

import asyncio
import json
import random
import signal
from collections import Counter

import pytest
from tests.support.connect_worker import Rest, WorkerProcess, records_of
from tests.support.seeds import seed
from tests.support.waiting import until

from busway import Admin, NewTopic, Producer, TopicPartition, read_to_end
from busway_connect.connector import SourceRecord
from busway_connect.runtime.exactly_once import HEADER, Mark, Marker, Written

TOPICS = ("even", "odd")
COUNT = 10_000


def expected(count: int) -> Counter[int]:
    """How often each number should be there."""
    return Counter({number: 2 if number % 3 == 0 else 1 for number in range(count)})


async def make_topics(bootstrap: str) -> None:
    """Two topics of three partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions=3) for name in TOPICS])


async def numbers(bootstrap: str) -> list[int]:
    """All numbers in the topics, partition by partition in order."""
    numbers_read = []
    for topic in TOPICS:
        last: dict[int, int] = {}
        for record in await records_of(bootstrap, topic):
            assert record.value is not None
            number = json.loads(record.value)["payload"]["n"]
            assert last.get(record.partition, -1) <= number, f"{topic}-{record.partition} is out of order at {number}"
            last[record.partition] = number
            numbers_read.append(number)
    return numbers_read


CONFIG = {
    "connector_class": "CountingSource",
    "topics": ",".join(TOPICS),
    "topic_creation_default_partitions": "3",
}


@pytest.mark.hostile
@pytest.mark.slow
async def test_killed_again_and_again_under_load_nothing_is_lost_or_doubled(bus: str) -> None:
    """SIGKILL at random moments, six times: every number is there as often as the source gave it, each partition in order."""
    chance = random.Random(seed(1))
    await make_topics(bus)
    for turn in range(6):
        async with WorkerProcess(bus, flush_ms=chance.choice([20, 200])) as worker, worker.rest() as rest:
            if turn == 0:
                await rest.create("count", count=str(COUNT), **CONFIG)
            await asyncio.sleep(chance.uniform(0.0, 0.3))  # the moment of the kill is what is tried out
            await worker.kill()
    async with WorkerProcess(bus) as worker, worker.rest() as rest:
        await until(lambda: _finished(rest, COUNT))
        assert await worker.kill(signal.SIGTERM) == 0
    assert Counter(await numbers(bus)) == expected(COUNT)


async def _finished(rest: Rest, count: int) -> bool:
    _, response = await rest.call("GET", "/connectors/count/offsets")
    return bool(response.get("offsets")) and response["offsets"][0]["offset"]["n"] == count - 1


@pytest.mark.slow
async def test_records_produced_but_not_stored_are_found_in_the_topics(bus: str) -> None:
    """Killed before any offset was stored: all is read again, and all of it is there already."""
    await make_topics(bus)
    async with WorkerProcess(bus, flush_ms=600_000) as worker, worker.rest() as rest:
        await rest.create("count", count="500", **CONFIG)

        async def produced() -> bool:
            return len(await numbers(bus)) >= expected(500).total()

        await until(produced)
        _, response = await rest.call("GET", "/connectors/count/offsets")
        await worker.kill()
    assert response == {"offsets": []}
    async with WorkerProcess(bus) as worker, worker.rest() as rest:
        await until(lambda: _finished(rest, 500))
        text = (await rest.http.get("/metrics")).text
        await worker.kill(signal.SIGTERM)
    assert Counter(await numbers(bus)) == expected(500)
    dropped = (
        f'busway_connect_records_already_written_total{{connector="count",type="source"}} {expected(500).total()}.0'
    )
    assert dropped in text


@pytest.mark.slow
async def test_offsets_taken_back_on_purpose_write_again(rest: Rest, bus: str) -> None:
    """A person who sets the offset back wants the records again: the marks of before do not hide them."""
    await make_topics(bus)
    await rest.create("count", count="100", **CONFIG)
    await until(lambda: _finished(rest, 100))
    await rest.call("PUT", "/connectors/count/stop")
    await rest.wait_for("count", None)
    change = {"offsets": [{"partition": {"counter": "one"}, "offset": {"n": 49}}]}
    assert (await rest.call("PATCH", "/connectors/count/offsets", change))[0] == 200
    await rest.call("PUT", "/connectors/count/resume")
    await until(lambda: _finished(rest, 100))
    await rest.call("PUT", "/connectors/count/stop")
    await rest.wait_for("count", None)
    counts: Counter[int] = Counter()
    for topic in TOPICS:
        counts.update(json.loads(record.value or b"")["payload"]["n"] for record in await records_of(bus, topic))
    assert counts == expected(100) + Counter({number: times for number, times in expected(100).items() if number >= 50})


async def test_each_record_carries_where_it_came_from(rest: Rest, bus: str) -> None:
    """The header names connector, epoch, source partition, position, and counts what shares a position."""
    await rest.create("count", count="4", connector_class="CountingSource", topics="one")
    await until(lambda: _finished(rest, 4))
    marks = [dict(record.headers)[HEADER] for record in await records_of(bus, "one")]
    assert sorted(marks) == [
        b'["count",0,{"counter":"one"},[%d],%d]' % place for place in [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (3, 1)]
    ]


async def test_the_last_mark_is_found_behind_what_others_wrote(bus: str) -> None:
    """However many records of others follow; a record counts as written within its epoch and source partition only."""
    position = [7, "a"]
    async with Admin(bus) as admin, Producer(bus) as producer:
        await admin.create_topics([NewTopic("shared", partitions=2)])
        marker = Marker("mine", 3, lambda offset: position)
        source = SourceRecord(topic="shared", value=None, value_schema=None, partition={"p": 1}, offset={})
        for _ in range(2):
            marked = marker.mark(source)
            assert marked is not None
            await producer.send("shared", b"ours", partition=1, headers=[(HEADER, marked[1])])
        for number in range(700):
            headers = [(HEADER, b'["other",0,{"p":1},[9],0]')] if number % 2 else [(HEADER, b"damaged")]
            await producer.send("shared", b"theirs", partition=1, headers=headers)
        await producer.flush()
        written = Written("mine", 3, lambda topic, starts: read_to_end(bus, topic, starts, starts=starts), admin)
        await written.look_at("shared")
    there = TopicPartition("shared", 1)
    for mark, has in [
        (Mark(epoch=3, partition={"p": 1}, place=[7, "a", 1]), True),
        (Mark(epoch=3, partition={"p": 1}, place=[6, "z", 0]), True),
        (Mark(epoch=3, partition={"p": 1}, place=[7, "a", 2]), False),
        (Mark(epoch=3, partition={"p": 1}, place=[8, "a", 0]), False),
        (Mark(epoch=4, partition={"p": 1}, place=[7, "a", 1]), False),
        (Mark(epoch=3, partition={"p": 2}, place=[7, "a", 1]), False),
    ]:
        assert written.has(there, mark) is has
        assert not written.has(TopicPartition("shared", 0), mark)


@pytest.mark.hostile
@pytest.mark.slow
async def test_a_second_worker_stands_by_and_takes_over(bus: str) -> None:
    """One of a group works; when it is killed the other goes on where it was."""
    await make_topics(bus)
    async with WorkerProcess(bus) as first, first.rest() as rest:
        await rest.create("count", count=str(COUNT), **CONFIG)
        async with WorkerProcess(bus) as second, second.rest() as other:
            assert (await other.call("GET", "/health"))[0] == 503
            assert (await other.call("GET", "/connectors"))[0] == 409
            await first.kill()

            async def took_over() -> bool:
                return (await other.call("GET", "/health"))[0] == 200

            await until(took_over)
            await until(lambda: _finished(other, COUNT))
            await second.kill(signal.SIGTERM)
    assert Counter(await numbers(bus)) == expected(COUNT)
