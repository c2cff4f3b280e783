"""The producer against a real node, judged by a foreign consumer."""

import asyncio

import aiokafka
import pytest
from tests.integration.client.conftest import Cluster

from busway.errors import BrokerError, ConnectionFailed, MessageTooLarge, NotRunning
from busway.producer.producer import Producer
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


async def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of `count` records, read with aiokafka."""
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(30):
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
    assert [found.offset for found in placed] == list(range(1_000))
    records = await read_all(cluster.bootstrap_servers, topic, 1_000)
    assert [value for _, _, value in records] == [b"%d" % number for number in range(1_000)]


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
    assert [found.offset for found in placed] == list(range(3_000))
    records = await read_all(node.bootstrap_servers, topic, 3_000)
    assert [value for _, _, value in records] == [b"%d" % number for number in range(3_000)]


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
    async with Producer(cluster.bootstrap_servers) as producer, asyncio.timeout(20):
        for number, bad in enumerate(BAD):
            with pytest.raises((TypeError, ValueError)):
                await producer.send(topic, **bad)  # type: ignore[arg-type]
            assert (await producer.send_and_wait(topic, b"good")).offset == number


async def test_an_address_where_nobody_listens_is_named() -> None:
    """The error says which address was tried."""
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        await Producer("127.0.0.1:1").start()
