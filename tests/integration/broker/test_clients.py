"""librdkafka against a real node: what outlives a restart, and administration. All clients: `tests/interop`."""

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from tests.support.apache_kafka import java
from tests.support.patience import patient

from busway_bus.testing.local_cluster import LocalCluster

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
    assert producer.flush(patient(20)) == 0
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
    (committed,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=patient(10))
    consumer.close()
    return int(committed.offset)


async def test_administration_with_librdkafka(cluster: LocalCluster) -> None:
    """Create, describe, alter, grow and delete a topic; refuse what is wrong by name."""
    await run(administer, cluster.bootstrap_servers)


def administer(bootstrap: str) -> None:
    """The steps, blocking."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def outcome(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(patient(10))

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
    assert len(admin.list_topics("orders", timeout=patient(10)).topics["orders"].partitions) == 5
    outcome(admin.delete_topics(["orders"]))
    assert "orders" not in admin.list_topics(timeout=patient(10)).topics


@pytest.mark.java
@pytest.mark.foreign
async def test_a_transactional_java_producer_is_read_when_it_has_committed(cluster: LocalCluster) -> None:
    """With transaction version 2, many short transactions; Kafka's own tool finds none open afterwards, and who has written."""
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--transactional-id", "one"]
    sizes = ["--num-records", "500", "--record-size", "10", "--throughput", "1000", "--transaction-duration-ms", "20"]
    await run(lambda: java("org.apache.kafka.tools.ProducerPerformance", *where, *sizes, seconds=60))
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "two"})

    def left_open() -> None:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"open")
        assert producer.flush(patient(20)) == 0

    await run(left_open)
    assert cluster.node is not None
    partition = cluster.node.services.replicas.find("t", 0)
    while partition.last_stable_offset < partition.high_watermark - 1:
        await asyncio.sleep(0.01)
    assert partition.high_watermark - 1 > 500 + 2, "markers are among the records"
    tool = ["org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", cluster.bootstrap_servers]
    output = await run(lambda: java(*tool, "describe-producers", "--topic", "t", "--partition", "0", seconds=60))
    _, *rows = [line.split() for line in output.splitlines() if line.strip()]
    assert sorted(row[-1] for row in rows) == sorted(["None", str(partition.high_watermark - 1)])
    await run(producer.abort_transaction, 20)


@pytest.mark.java
@pytest.mark.foreign
async def test_what_java_reports_as_sent_is_in_the_log(cluster: LocalCluster) -> None:
    """A batch that is too large is split by the producer, and its parts come with sequences of their own. Whatever then happens, no
    record may count as sent that was never written."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic("split", 1, 1, config={"max.message.bytes": "20000"})
    await asyncio.to_thread(admin.create_topics([new])["split"].result, patient(20))
    limits = ["batch.size=26000", "linger.ms=300", "acks=all", "delivery.timeout.ms=6000", "request.timeout.ms=2000"]
    output = await asyncio.to_thread(
        java, "org.apache.kafka.tools.ProducerPerformance",
        "--topic", "split", "--num-records", "7", "--record-size", "5000", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", *limits,
    )  # fmt: skip
    sent = int(output.strip().splitlines()[-1].split()[0])
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    partition = confluent_kafka.TopicPartition("split", 0)
    _, end = await asyncio.to_thread(consumer.get_watermark_offsets, partition, patient(10))
    consumer.close()
    assert end == sent
