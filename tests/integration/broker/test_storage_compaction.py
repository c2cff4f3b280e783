"""Compaction on a real node: what foreign clients read afterwards, and the offsets topic."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.patience import patient

from busway.consumer.consumer import Consumer
from busway.types import TopicPartition
from busway_bus.log.cleaner import Cleaner
from busway_bus.replication.log_cleaner import LogCleaner
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


async def create(cluster: LocalCluster, **configs: str) -> None:
    """Create topic t with one partition and these settings, their dots written as underscores."""
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    await admin.create_topics([NewTopic("t", 1, 1, topic_configs=settings)])
    await admin.close()


async def produce(cluster: LocalCluster, rounds: int, keys: int = 20) -> dict[bytes, bytes | None]:
    """Write every key in each round, the last key as a tombstone in the end; the model of what stays."""
    model: dict[bytes, bytes | None] = {}
    for number in range(rounds):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, compression_type=CODECS[number % 5], enable_idempotence=True
        )
        await producer.start()
        for key in range(keys):
            name = b"key %d" % key
            model[name] = None if key == keys - 1 and number == rounds - 1 else b"%d" % number * 50
            await producer.send("t", key=name, value=model[name])
        await producer.stop()
    return model


async def compact(cluster: LocalCluster) -> None:
    """Run the chores once."""
    replicas = cluster.node.services.replicas
    await replicas.logs.maintain()


def size(cluster: LocalCluster, topic: str) -> int:
    """Bytes of a partition's segments."""
    return sum(path.stat().st_size for path in (Path(cluster.data_dir) / f"{topic}-0").glob("*.log"))


async def read_aiokafka(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """Offsets, keys and values, read with aiokafka."""
    consumer = aiokafka.AIOKafkaConsumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    partition = aiokafka.TopicPartition("t", 0)
    end = (await consumer.end_offsets([partition]))[partition]
    rows = []
    while await consumer.position(partition) < end:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            rows += [(record.offset, record.key, record.value) for record in records]
    await consumer.stop()
    return rows


async def read_own(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """The same with the SDK."""
    partition, rows = TopicPartition("t", 0), []
    async with Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                rows += [(record.offset, record.key, record.value) for record in records]
    return rows


def read_librdkafka(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """The same with librdkafka, up to the end of the partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    rows = []
    while True:
        message = consumer.poll(patient(10))
        assert message is not None
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return rows


async def test_every_client_reads_a_compacted_topic(caplog: pytest.LogCaptureFixture) -> None:
    """All see the last value of each key at its offset; a producer goes on where it was, also after a restart."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        model = await produce(cluster, 10)
        before = size(cluster, "t")
        await compact(cluster)
        assert size(cluster, "t") < before / 3
        for _ in range(2):
            rows = await read_aiokafka(cluster.bootstrap_servers)
            assert {key: value for _, key, value in rows} == model
            assert len(rows) == len(model)
            assert all(180 <= offset < 200 for offset, _, _ in rows)
            assert await asyncio.to_thread(read_librdkafka, cluster.bootstrap_servers) == rows
            assert await read_own(cluster.bootstrap_servers) == rows
            await cluster.stop()
            await cluster.start()
        model = await produce(cluster, 3)
        await compact(cluster)
        rows = await read_aiokafka(cluster.bootstrap_servers)
        assert {key: value for _, key, value in rows} == model
        assert len(rows) == len(model)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_writing_goes_on_while_a_log_is_cleaned() -> None:
    """Records acknowledged during a cleaning are all there, in order, behind what was cleaned."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        model = await produce(cluster, 20, keys=200)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        before = size(cluster, "t")
        cleaning = asyncio.ensure_future(cluster.node.services.replicas.logs.maintain())
        written = []
        while not cleaning.done():
            written.append(await producer.send_and_wait("t", key=b"%d" % len(written), value=b"new"))
        await cleaning
        await producer.stop()
        assert size(cluster, "t") < before / 3
        assert len(written) > 1
        rows = await read_aiokafka(cluster.bootstrap_servers)
        assert [offset for offset, _, _ in rows] == sorted(offset for offset, _, _ in rows)
        late = [(offset, key) for offset, key, value in rows if value == b"new"]
        assert late == [(answer.offset, b"%d" % number) for number, answer in enumerate(written)]
        assert {key: value for _, key, value in rows if value != b"new"} == model


async def test_a_topic_deleted_while_it_is_cleaned_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it comes back, no client complains, and one created again under its name is its own."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        await produce(cluster, 20, keys=200)
        replicas = cluster.node.services.replicas
        log = replicas.find("t", 0).log
        started = asyncio.Event()
        advance = LogCleaner._slices

        async def tell(compactor: LogCleaner, steps: Iterator[None]) -> None:
            started.set()
            await advance(compactor, steps)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogCleaner, "_slices", tell)
            cleaning = asyncio.ensure_future(replicas.logs.maintain())
            await started.wait()
            admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
            await admin.start()
            await admin.delete_topics(["t"])
            await admin.close()
            await create(cluster, cleanup_policy="compact", segment_ms="1")
            await cleaning
        assert log.closed
        names = [path.name for path in (Path(cluster.data_dir) / "t-0").iterdir()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        model = await produce(cluster, 2)
        await compact(cluster)
        rows = await read_aiokafka(cluster.bootstrap_servers)
        assert {key: value for _, key, value in rows} == model
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_node_stopped_while_it_cleans_starts_again() -> None:
    """The cleaning is dropped; everything is there after the restart, and the next one goes through."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        model = await produce(cluster, 20, keys=200)
        cleaning = asyncio.ensure_future(cluster.node.services.replicas.logs.maintain())
        await asyncio.sleep(0)
        cleaning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cleaning
        await cluster.stop()
        await cluster.start()
        assert {key: value for _, key, value in await read_aiokafka(cluster.bootstrap_servers)} == model
        await compact(cluster)
        rows = await read_aiokafka(cluster.bootstrap_servers)
        assert {key: value for _, key, value in rows} == model
        assert len(rows) == len(model)


async def test_a_log_that_cannot_be_cleaned_is_named_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged batch ends the cleaning of its log with one line; the log is served as it is."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        await produce(cluster, 3)
        before = size(cluster, "t")
        with (Path(cluster.data_dir) / "t-0" / f"{0:020d}.log").open("r+b") as file:
            file.seek(100)
            file.write(b"????")
        for _ in range(2):
            await compact(cluster)
        (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert "t-0 is not compacted any more" in line
        assert "checksum" in line
        assert size(cluster, "t") == before


async def test_a_cleaning_that_finds_the_disk_full_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was written is removed, the log is served as it is, and the next cleaning goes through."""
    async with LocalCluster() as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        model = await produce(cluster, 10)
        before = size(cluster, "t")

        def full(cleaner: Cleaner) -> bool:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Cleaner, "prepare", full)
        await compact(cluster)
        monkeypatch.undo()
        assert [record.levelname for record in caplog.records if record.name == "busway.cleaner"] == ["WARNING"]
        assert size(cluster, "t") == before
        assert not list((Path(cluster.data_dir) / "t-0").glob("*.cleaned"))
        await compact(cluster)
        rows = await read_aiokafka(cluster.bootstrap_servers)
        assert {key: value for _, key, value in rows} == model
        assert size(cluster, "t") < before / 3


async def test_the_cleaner_can_be_turned_off() -> None:
    """log.cleaner.enable=false leaves every log as it is."""
    async with LocalCluster(properties={"log.cleaner.enable": "false"}) as cluster:
        await create(cluster, cleanup_policy="compact", segment_ms="1")
        await produce(cluster, 3)
        before = size(cluster, "t")
        await compact(cluster)
        assert size(cluster, "t") == before


async def test_the_offsets_topic_does_not_grow_for_ever() -> None:
    """Commits of the same partition leave one record each time it is cleaned; the committed offset survives."""
    properties = {"log.roll.ms": "1", "offsets.topic.num.partitions": "1"}
    async with LocalCluster(properties=properties) as cluster:
        await create(cluster)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False
        )
        await consumer.start()
        partition = aiokafka.TopicPartition("t", 0)
        consumer.assign([partition])
        for offset in range(200):
            await consumer.commit({partition: offset})
        before = size(cluster, "__consumer_offsets")
        await compact(cluster)
        after = size(cluster, "__consumer_offsets")
        assert after < before / 20
        await consumer.commit({partition: 200})
        await consumer.stop()
        await cluster.stop()
        await cluster.start()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g")
        await consumer.start()
        assert await consumer.committed(partition) == 200
        await consumer.stop()
