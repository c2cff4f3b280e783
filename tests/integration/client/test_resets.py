"""Positions that were not committed: what a reset finds is committed, a topic that was created again is begun, readers create none."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient

from busway import Admin, BrokerError, Consumer, NewTopic, OffsetAndMetadata, Producer, RequestTimedOut, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
FAST = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000}
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


async def fill(bootstrap_servers: str, topic: str, count: int, first: int = 0) -> None:
    """Numbered records in the only partition."""
    async with Admin(bootstrap_servers) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topics([NewTopic(topic, 1)])
    async with Producer(bootstrap_servers) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number)


async def placed(consumer: Consumer, partition: TopicPartition) -> int:
    """The position of a partition once the group has given it."""
    while partition not in consumer.assignment():
        await consumer.getmany(timeout_ms=50)
    return await consumer.position(partition)


@PROTOCOLS
@pytest.mark.parametrize("ends", ["stop", "auto commit"])
async def test_the_end_that_latest_found_is_committed(
    cluster: Cluster, protocol: str, ends: str, topic: str, group: str
) -> None:
    """What comes while the reader is down is read afterwards, although it had read nothing before."""
    await fill(cluster.bootstrap_servers, topic, 10)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    options |= {"group_protocol": protocol, "auto_commit_interval_ms": 60_000 if ends == "stop" else 20}
    if protocol == "consumer":
        options = {name: value for name, value in options.items() if name not in FAST}
    partition = TopicPartition(topic, 0)
    consumer = Consumer(topic, **options)
    await consumer.start()
    assert await placed(consumer, partition) == 10
    if ends == "stop":
        await consumer.stop()
    else:
        async with asyncio.timeout(patient(20)):
            while await consumer.committed(partition) is None:
                await consumer.getmany(timeout_ms=20)
        await consumer.abort()
    await fill(cluster.bootstrap_servers, topic, 5, first=10)
    async with Consumer(topic, **options) as consumer, asyncio.timeout(patient(60)):
        assert (await consumer.getone()).value == b"10"


async def test_commit_takes_the_position_that_was_sought(cluster: Cluster, topic: str, group: str) -> None:
    """As kafka-python and aiokafka do, forwards and back, by offset and by an end of the log."""
    await fill(cluster.bootstrap_servers, topic, 10)
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    async with Consumer(topic, enable_auto_commit=False, auto_offset_reset="earliest", **options) as consumer:
        await placed(consumer, partition)
        for offset in (7, 3):
            consumer.seek(partition, offset)
            await consumer.commit()
            committed = await consumer.committed(partition)
            assert committed is not None
            assert committed.offset == offset
        consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 10
        await consumer.commit()
        committed = await consumer.committed(partition)
        assert committed is not None
        assert committed.offset == 10


@pytest.mark.parametrize("auto", [False, True])
async def test_a_commit_does_not_go_back_to_where_the_reset_began(
    cluster: Cluster, auto: bool, topic: str, group: str
) -> None:
    """Neither the next one, after a poll that brings nothing, nor that of the stop."""
    await fill(cluster.bootstrap_servers, topic, 10)
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    options |= {"enable_auto_commit": auto, "auto_commit_interval_ms": 60_000, "auto_offset_reset": "earliest"}
    async with Consumer(topic, **options) as consumer, asyncio.timeout(patient(60)):
        while await placed(consumer, partition) < 10:
            await consumer.getmany(timeout_ms=100)
        await consumer.commit()
        await consumer.getmany()
        if not auto:
            await consumer.commit()
    async with Consumer(topic, **options) as consumer:
        committed = await consumer.committed(partition)
        assert committed is not None
        assert committed.offset == 10


@pytest.mark.parametrize(("old", "new"), [(5, 30), (20, 10)])
@pytest.mark.parametrize("how", ["classic", "consumer", "assign"])
async def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    node: LocalCluster, how: str, old: int, new: int, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the new log is longer than what was read of the old one, or shorter; only the test creates it."""
    options: dict[str, Any] = {"bootstrap_servers": node.bootstrap_servers, "auto_offset_reset": "earliest"}
    if how != "assign":
        options |= {"group_id": group, "group_protocol": how, **(FAST if how == "classic" else {})}
    await fill(node.bootstrap_servers, topic, old)
    async with Consumer(*([] if how == "assign" else [topic]), **options) as consumer, asyncio.timeout(patient(60)):
        if how == "assign":
            await consumer.assign([TopicPartition(topic, 0)])
        for number in range(old):
            assert (await consumer.getone()).value == b"%d" % number
        async with Admin(node.bootstrap_servers) as admin:
            await admin.delete_topics([topic])
            await admin.create_topics([NewTopic(topic, 1)])
        await fill(node.bootstrap_servers, topic, new, first=100)
        assert [(await consumer.getone()).value for _ in range(new)] == [
            b"%d" % number for number in range(100, 100 + new)
        ]
    if how == "assign":
        assert f"topic {topic} was deleted and created again" in caplog.text


async def test_the_position_of_a_partition_that_does_not_exist_is_an_error(node: LocalCluster, topic: str) -> None:
    """After request_timeout_ms; it names how many there are."""
    await fill(node.bootstrap_servers, topic, 1)
    missing = TopicPartition(topic, 7)
    async with Consumer(bootstrap_servers=node.bootstrap_servers, request_timeout_ms=500) as consumer:
        await consumer.assign([missing])
        with pytest.raises(RequestTimedOut, match=f"{topic}-7 is not known after 500 ms; the topic has 1 partitions"):
            await consumer.position(missing)


@pytest.mark.parametrize("creates", [False, True])
async def test_a_reader_creates_a_topic_only_when_it_is_told_to(node: LocalCluster, creates: bool, topic: str) -> None:
    """`allow_auto_create_topics`, where the brokers have auto.create.topics.enable."""
    consumer = Consumer(
        topic,
        bootstrap_servers=node.bootstrap_servers,
        request_timeout_ms=2_000,
        allow_auto_create_topics=creates,
    )
    if creates:
        async with consumer:
            assert consumer.assignment()
    else:
        with pytest.raises(BrokerError, match="allow_auto_create_topics"):
            await consumer.start()
    async with Admin(node.bootstrap_servers) as admin:
        assert (topic in await admin.list_topics()) is creates


async def test_partitions_that_are_no_longer_assigned_are_committed_once(
    cluster: Cluster, topic: str, group: str
) -> None:
    """At `assign`: another consumer may read on from there, and nothing takes the group back behind it."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(4):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group}
    options |= {"auto_commit_interval_ms": 60_000, "auto_offset_reset": "earliest", "max_poll_records": 1}
    async with Consumer(**options) as consumer, Consumer(**options) as other, asyncio.timeout(patient(60)):
        await consumer.assign([first, second])
        assert {(await consumer.getone(member)).partition for member in (first, second)} == {0, 1}
        await consumer.assign([second])
        assert await consumer.committed_of([first, second]) == {first: OffsetAndMetadata(1, "", 0)}
        await other.assign([first])
        assert (await other.getone()).value == b"2"
        await other.commit()
        await consumer.stop()
        committed = await other.committed_of([first, second])
    assert {partition: at.offset for partition, at in committed.items()} == {first: 2, second: 1}


async def test_a_commit_that_fails_keeps_the_offsets_of_what_is_still_assigned(
    cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next automatic commit brings them, also when nothing more is handed out."""
    await fill(cluster.bootstrap_servers, topic, 3)
    partition = TopicPartition(topic, 0)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **FAST}
    async with Consumer(topic, auto_offset_reset="earliest", auto_commit_interval_ms=20, **options) as consumer:
        offsets, failed, kept = consumer._require_group().offsets, asyncio.Event(), asyncio.Event()
        commit = offsets.commit

        async def refused(wanted: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            if wanted.get(partition) == OffsetAndMetadata(3, "", 0) and not failed.is_set():
                failed.set()
                raise offsets.failed([TopicPartition(topic, 9)], "it was joined again")
            await commit(wanted)
            if partition in wanted and failed.is_set():
                kept.set()

        monkeypatch.setattr(offsets, "commit", refused)
        async with asyncio.timeout(patient(60)):
            for _ in range(3):
                await consumer.getone()
            await consumer.getmany()
            await failed.wait()
            await kept.wait()
            committed = await consumer.committed(partition)
            assert committed is not None
            assert committed.offset == 3
    assert f"the offsets of {topic}-9 were not committed" in caplog.text
