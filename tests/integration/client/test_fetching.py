"""What the reader learns of its positions, and that no partition waits for another that cannot be read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Admin, Consumer, NewTopic, Producer, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow
FAST: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": patient_ms(10_000)}


@pytest.fixture
async def proxy(node: LocalCluster) -> AsyncIterator[Proxy]:
    """The way to the node."""
    async with Proxy(node.bootstrap_servers) as running:
        yield running


async def made(address: str, topic: str, partitions: int, each: int) -> None:
    """A topic with so many records in each partition."""
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])
    async with Producer(address) as producer:
        for number in range(each):
            for partition in range(partitions):
                await producer.send(topic, b"%d" % number, partition=partition)


async def begun(consumer: Consumer, partition: TopicPartition) -> int:
    """Its position, once the group has given it."""
    async with asyncio.timeout(patient(20)):
        while partition not in consumer.assignment():
            await asyncio.sleep(0.01)
        return await consumer.position(partition)


@pytest.mark.parametrize(("policy", "position", "skipped"), [("latest", 10, True), ("earliest", 5, False)])
async def test_a_position_that_is_not_in_the_log_is_reset_aloud(
    policy: str,
    position: int,
    skipped: bool,
    cluster: Cluster,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The partition, the offset, the log's bounds, where it goes on and why, and how many records that skips."""
    caplog.set_level("INFO", "busway.consumer")
    await made(cluster.bootstrap_servers, topic, 1, 10)
    partition = TopicPartition(topic, 0)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, "enable_auto_commit": False, **FAST}
    async with Consumer(topic, **options) as consumer:
        await begun(consumer, partition)
        assert f"{topic}-0 has no committed offset and is begun at 10 (latest)" in caplog.text
        await consumer.commit({partition: 2})
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.delete_records({partition: 5})
    async with Consumer(topic, auto_offset_reset=policy, **options) as consumer:
        while await begun(consumer, partition) != position:
            await asyncio.sleep(0.01)
    (line,) = [record for record in caplog.records if "not in its log" in record.getMessage()]
    text = line.getMessage()
    assert line.levelname == "WARNING"
    assert f"offset 2 of {topic}-0 is not in its log, which has 5 to 10" in text
    assert f"going on at {position} (auto_offset_reset={policy})" in text
    assert ("5 records are skipped" in text) is skipped


async def test_a_partition_that_cannot_be_read_slows_no_other(proxy: Proxy, topic: str) -> None:
    """One without a leader, and one whose leader says that it is none: the third is read in as few fetches as alone."""
    await made(proxy.address, topic, 3, 1)

    def without_leader(answer: Any) -> None:
        for topic_metadata in answer.topics:
            for partition in topic_metadata.partitions:
                if topic_metadata.name == topic and partition.partition_index == 1:
                    partition.error_code, partition.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1

    def no_leader(answer: Any) -> None:
        for topic_response in answer.responses:
            for partition in topic_response.partitions:
                if partition.partition_index == 2:
                    partition.error_code, partition.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None

    good = TopicPartition(topic, 0)
    proxy.edits[ApiKey.METADATA] = without_leader
    proxy.edits[ApiKey.FETCH] = no_leader
    async with Consumer(topic, bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(patient(20)):
            assert (await consumer.getone()).value == b"0"
            # From here on a record must come by the fetch that waits for it, not by the next round of tries.
            async with Producer(proxy.target) as producer:
                for number in range(1, 30):
                    await producer.send_and_wait(topic, b"%d" % number, partition=0)
                    record = await consumer.getone(good)
                    assert record.value == b"%d" % number


async def test_a_look_up_that_is_not_answered_keeps_no_fetch_waiting(proxy: Proxy, topic: str) -> None:
    """A partition whose position has to be looked up waits for that alone; the others are read meanwhile."""
    await made(proxy.address, topic, 2, 3)
    slow, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
        await consumer.assign([good])
        async with asyncio.timeout(patient(20)):
            assert (await consumer.getone()).offset == 0
            held = proxy.strike(Fate.HOLD, ApiKey.LIST_OFFSETS)
            await consumer.assign([slow, good])
            await held.happened.wait()
            assert [(await consumer.getone(good)).offset for _ in range(2)] == [1, 2]
            async with Producer(proxy.target) as producer:
                await producer.send_and_wait(topic, b"new", partition=1)
            assert (await consumer.getone(good)).value == b"new"
            held.lift()
            assert (await consumer.getone(slow)).offset == 0


async def test_what_is_made_later_is_found(cluster: Cluster, topic: str, group: str) -> None:
    """Topics that a pattern matches and partitions of a topic, with a group and without."""
    first, second = f"{topic}-first", f"{topic}-second"
    await made(cluster.bootstrap_servers, first, 1, 1)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "metadata_max_age_ms": 50, **FAST}
    async with (
        Consumer(group_id=group, auto_offset_reset="earliest", **options) as shared,
        Consumer(auto_offset_reset="earliest", **options) as alone,
        Admin(cluster.bootstrap_servers) as admin,
        asyncio.timeout(patient(30)),
    ):
        for consumer in (shared, alone):
            await consumer.subscribe(pattern=f"{topic}-.*")
            assert (await consumer.getone()).topic == first
        await admin.create_partitions({first: 2})
        await made(cluster.bootstrap_servers, second, 1, 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(first, b"new", partition=1)
        for consumer in (shared, alone):
            partitions = {
                (record.topic, record.partition) for record in [await consumer.getone(), await consumer.getone()]
            }
            assert partitions == {(first, 1), (second, 0)}


async def test_a_topic_that_is_not_there_is_named_at_once(
    topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where brokers make none by themselves: the wait is not silent, and ends when it is made."""
    async with LocalCluster(properties={"auto.create.topics.enable": "false"}) as node:
        consumer = Consumer(topic, bootstrap_servers=node.bootstrap_servers, group_id=group, **FAST)
        starting = asyncio.ensure_future(consumer.start())
        async with asyncio.timeout(patient(20)):
            while f"waiting for {topic}" not in caplog.text:
                await asyncio.sleep(0.01)
            assert not starting.done()
            await made(node.bootstrap_servers, topic, 1, 1)
            await starting
        await consumer.stop()


async def test_a_broker_that_is_away_and_comes_back_is_two_lines(
    proxy: Proxy, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried meanwhile."""
    caplog.set_level("INFO", "busway.consumer")
    await made(proxy.address, topic, 1, 1)
    async with Consumer(topic, bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(patient(20)):
            await consumer.getone()
            cuts = proxy.strike(Fate.CUT, ApiKey.FETCH, times=3)
            async with Producer(proxy.target) as producer:
                await producer.send_and_wait(topic, b"second")
            assert (await consumer.getone()).value == b"second"
            while not any("answers again" in text for text in caplog.messages):
                await consumer.getmany(timeout_ms=10)
    assert cuts.count in {1, 2, 3}
    lines = [text for text in caplog.messages if text.startswith("broker ")]
    assert [" ".join(line.split()[2:4]) for line in lines] == ["cannot be", "answers again"]
