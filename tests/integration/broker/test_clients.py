"""Clients that nobody here wrote, against a real node: produce, consume, groups, restart, administration."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from busway_bus.testing.local_cluster import LocalCluster

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 300
pytestmark = pytest.mark.slow


def librdkafka_produce(bootstrap: str, topic: str, codec: str, count: int = RECORDS) -> None:
    """Produce with librdkafka, idempotent; every record must be acknowledged."""
    failures: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
    )
    for number in range(count):
        producer.produce(
            topic,
            key=f"{codec}-{number}",
            value=b"v" * 100,
            headers={"h": b"1"},
            on_delivery=lambda problem, _: failures.append(problem) if problem else None,
        )
    assert producer.flush(20) == 0
    assert failures == []


def librdkafka_consume(bootstrap: str, topic: str, group: str, count: int) -> set[bytes]:
    """Consume `count` records in a group and commit."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    keys: set[bytes] = set()
    for _ in range(60):
        for message in consumer.consume(count, 0.5):
            assert message.error() is None
            keys.add(message.key())
        if len(keys) >= count:
            break
    if keys:
        consumer.commit(asynchronous=False)
    consumer.close()
    return keys


async def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """A blocking client in a thread, while the node runs in this loop."""
    return await asyncio.to_thread(function, *arguments)


async def test_every_codec_of_librdkafka_is_read_back_by_every_client(cluster: LocalCluster) -> None:
    """Written with librdkafka in five codecs; read with librdkafka, aiokafka and kafka-python."""
    bootstrap = cluster.bootstrap_servers
    for codec in CODECS:
        await run(librdkafka_produce, bootstrap, "codecs", codec)
    expected = {f"{codec}-{number}".encode() for codec in CODECS for number in range(RECORDS)}
    assert await run(librdkafka_consume, bootstrap, "codecs", "g", len(expected)) == expected
    assert await aiokafka_read(bootstrap, "codecs", len(expected)) == expected
    assert await run(kafka_python_read, bootstrap, "codecs", len(expected)) == expected


async def aiokafka_read(bootstrap: str, topic: str, count: int) -> set[bytes]:
    """All keys of a topic, with aiokafka."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest"
    )
    await consumer.start()
    keys = set()
    try:
        async with asyncio.timeout(30):
            while len(keys) < count:
                message = await consumer.getone()
                assert message.headers == (("h", b"1"),)
                keys.add(message.key)
    finally:
        await consumer.stop()
    return keys


def kafka_python_read(bootstrap: str, topic: str, count: int) -> set[bytes]:
    """All keys of a topic, with kafka-python."""
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id="kp", auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    keys: set[bytes] = set()
    for message in consumer:
        keys.add(message.key)
        if len(keys) == count:
            break
    consumer.close()
    return keys


async def test_a_restart_keeps_records_groups_and_settings(cluster: LocalCluster) -> None:
    """Everything acknowledged is there after a stop and a start on the same data."""
    await run(librdkafka_produce, cluster.bootstrap_servers, "kept", "none")
    keys = await run(librdkafka_consume, cluster.bootstrap_servers, "kept", "g", RECORDS)
    assert len(keys) == RECORDS
    await cluster.stop()
    await cluster.start()
    assert await run(librdkafka_consume, cluster.bootstrap_servers, "kept", "other", RECORDS) == keys
    committed = await run(committed_offset, cluster.bootstrap_servers, "g", "kept")
    assert committed == RECORDS


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """What the group committed for partition 0."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return int(found.offset)


async def test_a_group_of_three_survives_the_loss_of_a_member(cluster: LocalCluster) -> None:
    """One of three aiokafka members leaves; the others take its partitions over and nothing is missed."""
    bootstrap = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    await run(lambda: [done.result(10) for done in admin.create_topics([NewTopic("shared", 6, 1)]).values()])
    members = [
        aiokafka.AIOKafkaConsumer(
            "shared",
            bootstrap_servers=bootstrap,
            group_id="three",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
        )
        for _ in range(3)
    ]
    await asyncio.gather(*(member.start() for member in members))
    try:
        async with asyncio.timeout(30):
            while sorted(len(member.assignment()) for member in members) != [2, 2, 2]:
                await asyncio.gather(*(member.getmany(timeout_ms=50) for member in members))
            await members[0].stop()
            await run(librdkafka_produce, bootstrap, "shared", "none")
            keys: set[bytes] = set()
            while len(keys) < RECORDS:
                for member in members[1:]:
                    for batch in (await member.getmany(timeout_ms=100)).values():
                        keys.update(message.key for message in batch)
        assert sum(len(member.assignment()) for member in members[1:]) == 6
    finally:
        await asyncio.gather(*(member.stop() for member in members[1:]))


async def test_administration_with_librdkafka(cluster: LocalCluster) -> None:
    """Create, describe, alter, grow and delete a topic; refuse what is wrong by name."""
    await run(administer, cluster.bootstrap_servers)


def administer(bootstrap: str) -> None:
    """The steps, blocking."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def outcome(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(10)

    outcome(admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "1000"})]))
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        outcome(admin.create_topics([NewTopic("orders", 2, 1)]))
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_REPLICATION_FACTOR"):
        outcome(admin.create_topics([NewTopic("wide", 1, 3)]))
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_CONFIG"):
        outcome(admin.create_topics([NewTopic("odd", 1, 1, config={"retension.ms": "1"})]))
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_EXCEPTION"):
        outcome(admin.create_topics([NewTopic("a/b", 1, 1)]))
    settings = outcome(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]))
    assert settings["retention.ms"].value == "1000"
    assert settings["durability"].value == "flush"
    assert settings["segment.bytes"].is_default
    outcome(admin.create_partitions([NewPartitions("orders", 5)]))
    assert len(admin.list_topics("orders", timeout=10).topics["orders"].partitions) == 5
    outcome(admin.delete_topics(["orders"]))
    assert "orders" not in admin.list_topics(timeout=10).topics


async def test_offsets_by_time_are_those_of_the_first_record_at_or_after(cluster: LocalCluster) -> None:
    """ListOffsets by timestamp, asked by kafka-python (KIP-79)."""
    await run(by_time, cluster.bootstrap_servers)


def by_time(bootstrap: str) -> None:
    """The steps, blocking."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    base = 1_700_000_000_000
    for number in range(100):
        producer.send("timed", b"v", timestamp_ms=base + number * 1_000).get(10)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    partition = kafka.TopicPartition("timed", 0)
    found = consumer.offsets_for_times({partition: base + 41_500})[partition]
    assert (found.offset, found.timestamp) == (42, base + 42_000)
    assert consumer.offsets_for_times({partition: base + 10**9})[partition] is None
    assert consumer.end_offsets([partition])[partition] == 100
    assert consumer.beginning_offsets([partition])[partition] == 0
    consumer.close()
