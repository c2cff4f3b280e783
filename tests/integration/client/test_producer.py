"""The producer against a real node, judged by a foreign consumer."""

import asyncio
import random
from collections.abc import Iterator

import aiokafka
import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient

from busway import Admin, NewTopic, TopicPartition
from busway.consumer.consumer import Consumer
from busway.errors import BrokerError, ConnectionFailed, MessageTooLarge, NotRunning
from busway.producer.producer import KeyValueHeaders, Producer
from busway.types import RecordMetadata
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


async def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of `count` records, read with aiokafka."""
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(patient(30)):
            return [
                (message.partition, message.key, message.value)
                for message in [await consumer.getone() for _ in range(count)]
            ]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_arrive_in_order_in_every_codec(cluster: Cluster, codec: str, topic: str) -> None:
    """A thousand records of one key keep their order."""
    async with Producer(cluster.bootstrap_servers, compression_type=codec) as producer:
        sent = [await producer.send(topic, b"%d" % number, b"k") for number in range(1_000)]
        placed = await asyncio.gather(*sent)
    assert [metadata.offset for metadata in placed] == list(range(1_000))
    records = await read_all(cluster.bootstrap_servers, topic, 1_000)
    assert [value for _, _, value in records] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize("buffer_memory", [32 * 1024 * 1024, 1])
async def test_many_at_once_keep_their_order(cluster: Cluster, topic: str, buffer_memory: int) -> None:
    """Handed over together, keys, tombstones and headers arrive, with a future for each batch; also when there is hardly room."""
    headers = (("part", b"1"),), (("part", b"2"), ("none", None))
    records = [(b"%d" % number, b"v" if number % 3 else None, headers[number > 700]) for number in range(1_000)]
    async with Producer(cluster.bootstrap_servers, batch_size=4_096, buffer_memory=buffer_memory) as producer:
        futures = await producer.send_many(topic, records, partition=0)
        placed = await asyncio.gather(*futures)
    firsts = [metadata.offset for metadata in placed]
    assert firsts[0] == 0
    assert firsts == sorted(set(firsts))
    assert len(firsts) == 1_000 if buffer_memory == 1 else 2 < len(firsts) < 50
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        received = [await consumer.getone() for _ in records]
    assert [(record.key, record.value, record.headers) for record in received] == records


async def test_many_need_not_linger(cluster: Cluster, topic: str) -> None:
    """Those that a caller waits for are sent at once, with what waits in their batch."""
    async with Producer(cluster.bootstrap_servers, linger_ms=600_000) as producer, asyncio.timeout(patient(30)):
        (waiting,) = await producer.send_many(topic, [(b"a", b"1", ())], partition=0)
        (hurried,) = await producer.send_many(topic, [(b"b", b"2", ())], partition=0, linger=False)
        assert [(await future).offset for future in (waiting, hurried)] == [0, 1]


async def test_one_future_stands_for_those_that_need_none(cluster: Cluster, topic: str) -> None:
    """It learns where the first of them in the batch was put, and others of the batch have their own."""
    async with Producer(cluster.bootstrap_servers, linger_ms=600_000) as producer:
        own = await producer.send(topic, b"own", b"k")
        among = [await producer.send_among(topic, b"%d" % number, b"k", timestamp_ms=5 + number) for number in range(3)]
        other = await producer.send(topic, b"other", b"k")
        assert len(set(among)) == 1
        await producer.flush()
        assert await among[0] == RecordMetadata(topic, 0, 1, 5)
        assert [(await own).offset, (await other).offset] == [0, 4]
        assert await producer.send_among(topic, b"next", b"k") is not among[0]
        await producer.flush()


async def test_a_future_for_many_is_done_when_both_halves_of_their_batch_are(cluster: Cluster, topic: str) -> None:
    """A batch that is larger than the topic takes is sent in parts."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "5000"})])
    async with Producer(cluster.bootstrap_servers, linger_ms=600_000) as producer:
        among = {await producer.send_among(topic, b"%d" % number + bytes(500), b"k") for number in range(20)}
        (common,) = among
        await producer.flush()
        assert (await common).offset == 0
    records = await read_all(cluster.bootstrap_servers, topic, 20)
    assert [value.rstrip(b"\0") for _, _, value in records] == [b"%d" % number for number in range(20)]


async def test_many_that_break_off_leave_those_before(cluster: Cluster, topic: str) -> None:
    """What the source raises comes through, what it gave before is written, and the producer goes on."""

    def source() -> Iterator[KeyValueHeaders]:
        yield b"a", b"1", ()
        yield b"b", b"2", ()
        raise LookupError("no more")

    async with Producer(cluster.bootstrap_servers, max_request_size=1_000) as producer:
        with pytest.raises(LookupError):
            await producer.send_many(topic, source(), partition=0)
        with pytest.raises(MessageTooLarge):
            await producer.send_many(topic, [(b"c", b"3", ()), (b"d", bytes(2_000), ())], partition=0)
        with pytest.raises(ValueError, match=f"partition 7 of {topic} does not exist"):
            await producer.send_many(topic, source(), partition=7)
        assert (await producer.send_and_wait(topic, b"4", b"e", partition=0)).offset == 3
    records = await read_all(cluster.bootstrap_servers, topic, 4)
    assert [value for _, _, value in records] == [b"1", b"2", b"3", b"4"]


async def test_a_restart_of_the_broker_loses_and_doubles_nothing(node: LocalCluster, topic: str) -> None:
    """Records sent across a stop and start are there once each, in order."""
    async with Producer(node.bootstrap_servers, linger_ms=0) as producer:
        sent = []
        for number in range(3_000):
            sent.append(await producer.send(topic, b"%d" % number, b"k"))
            if number == 1_000:
                await node.stop()
                await node.start()
        placed = await asyncio.gather(*sent)
    assert [metadata.offset for metadata in placed] == list(range(3_000))
    records = await read_all(node.bootstrap_servers, topic, 3_000)
    assert [value for _, _, value in records] == [b"%d" % number for number in range(3_000)]


async def test_the_end_of_all_tasks_waits_for_no_broker(node: LocalCluster, topic: str) -> None:
    """As at the end of `asyncio.run`: the producer's own tasks are cancelled together with the one that uses it."""
    sent = asyncio.Event()

    async def use() -> None:
        async with Producer(node.bootstrap_servers, linger_ms=0) as producer:
            await producer.send_and_wait(topic, b"1")
            await node.stop()
            await producer.send(topic, b"2")
            sent.set()
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    user = asyncio.create_task(use())
    await sent.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    ended, _ = await asyncio.wait([user], timeout=patient(5))
    assert ended
    assert user.cancelled()


async def test_what_cannot_be_sent_is_said_at_once(cluster: Cluster, topic: str) -> None:
    """Too large, a topic that is none, a partition that is not there, a producer that does not run."""
    async with Producer(cluster.bootstrap_servers, max_request_size=1_000) as producer:
        with pytest.raises(MessageTooLarge, match="max_request_size=1000"):
            await producer.send(topic, bytes(2_000))
        with pytest.raises(BrokerError, match="topic a/b"):
            await producer.send("a/b", b"v")
        with pytest.raises(ValueError, match=f"partition 7 of {topic} does not exist"):
            await producer.send(topic, b"v", partition=7)
    with pytest.raises(NotRunning, match="not running"):
        await producer.send(topic, b"v")


BAD: list[dict[str, object]] = [
    {"value": "text"},
    {"value": 5},
    {"value": b"v", "key": "k"},
    {"value": b"v", "headers": [("h", "text")]},
    {"value": b"v", "headers": [(b"h", b"v")]},
    {"value": b"v", "headers": [("\ud800", b"v")]},
    {"value": b"v", "timestamp_ms": -1},
    {"value": b"v", "timestamp_ms": 2**63},
    {"value": b"v", "partition": -1},
]


async def test_a_record_that_is_none_is_refused_and_the_next_is_sent(cluster: Cluster, topic: str) -> None:
    """Text for bytes and the like: said at once, and the producer goes on."""
    async with Producer(cluster.bootstrap_servers) as producer, asyncio.timeout(patient(20)):
        for number, bad in enumerate(BAD):
            with pytest.raises((TypeError, ValueError)):
                await producer.send(topic, **bad)  # type: ignore[arg-type]
            assert (await producer.send_and_wait(topic, b"good")).offset == number


async def test_a_batch_that_the_broker_refuses_does_not_take_the_next_one_with_it(cluster: Cluster, topic: str) -> None:
    """Its sequence numbers were never used: the producer takes a new epoch, and what comes next is written."""
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        assert (await producer.send_and_wait(topic, b"one", b"k")).offset == 0
        for offset in (1, 2):
            await admin.alter_configs(topic, {"max.message.bytes": "100"})
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                await producer.send_and_wait(topic, b"x" * 1000, b"k")
            await admin.alter_configs(topic, {"max.message.bytes": "100000"})
            assert (await producer.send_and_wait(topic, b"next", b"k")).offset == offset


async def test_an_address_where_nobody_listens_is_named() -> None:
    """The error says which address was tried."""
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        await Producer("127.0.0.1:1").start()


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_batches_become_as_small_as_the_topic_wants_them(cluster: Cluster, topic: str, codec: str) -> None:
    """The topic's limit is below the producer's batch size: batches are halved until they fit, in order, and nothing fails or is doubled."""
    rng = random.Random(5)
    numbered = [b"%04d" % number + rng.randbytes(rng.randrange(1_500)) for number in range(200)]
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "5000"})])
    async with Producer(cluster.bootstrap_servers, linger_ms=50, compression_type=codec) as producer:
        sent = [await producer.send(topic, value, b"k") for value in numbered]
        await producer.flush()
        placed = [future.result() for future in sent]
    assert [metadata.offset for metadata in placed] == list(range(200))
    records = await read_all(cluster.bootstrap_servers, topic, 200)
    assert [value for _, _, value in records] == numbered


async def test_many_in_a_batch_that_is_split_are_acknowledged_with_the_last_of_them(
    cluster: Cluster, topic: str
) -> None:
    """One future stands for all that came together: it is done when the last part is written, and tells where the first one is."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "5000"})])
    async with Producer(cluster.bootstrap_servers, linger_ms=600_000) as producer:
        single = await producer.send(topic, b"single", b"k")
        (together,) = await producer.send_many(
            topic, [(b"k", b"%d" % number + bytes(500), ()) for number in range(50)], partition=0, linger=False
        )
        behind = await producer.send(topic, b"behind", b"k")
        assert (await together).offset == 1
        assert single.done()
        async with Admin(cluster.bootstrap_servers) as admin:
            assert (await admin.list_offsets({TopicPartition(topic, 0): -1}))[TopicPartition(topic, 0)] >= 51
        await producer.flush()
        assert (await behind).offset == 51


async def test_one_record_that_is_too_large_fails_alone(cluster: Cluster, topic: str) -> None:
    """The error names the topic's setting; the records that shared its batch are written."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "5000"})])
    async with Producer(cluster.bootstrap_servers, linger_ms=50) as producer:
        sizes = [10, 20, 6_000, 30, 7_000, 40]
        sent = [await producer.send(topic, bytes(size), b"k") for size in sizes]
        results = await asyncio.gather(*sent, return_exceptions=True)
    assert [result.offset for result in results if not isinstance(result, BaseException)] == [0, 1, 2, 3]
    problems = [str(result) for result in results if isinstance(result, BrokerError)]
    assert len(problems) == 2
    assert all(
        f"{topic}-0" in problem and "max.message.bytes" in problem and "MESSAGE_TOO_LARGE" in problem
        for problem in problems
    )
