"""One group of foreign members and of ours, balanced by the coordinator: one owner for each partition, every record read."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest
from tests.integration.client.conftest import Cluster
from tests.support.apache_kafka import java_command
from tests.support.patience import patient
from tests.support.programs import spawn_async

from busway import Admin, Consumer, NewTopic, Producer, RebalanceListener, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.java]
PARTITIONS = 6
RECORDS = 300
WAIT_S = patient(40.0)


class Ledger:
    """Who has had which partition from when to when, and what was read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.changed = threading.Event()
        self.has: dict[str, set[int]] = {}
        self.read: set[tuple[int, int]] = set()
        self.twice: list[str] = []

    def came(self, member: str, partitions: list[int]) -> None:
        """Partitions were given to a member."""
        with self._lock:
            for other, owned in self.has.items():
                if other != member and (both := owned.intersection(partitions)):
                    self.twice.append(f"{other} and {member} have {sorted(both)}")
            self.has.setdefault(member, set()).update(partitions)

    def went(self, member: str, partitions: list[int]) -> None:
        """It is about to give them up."""
        with self._lock:
            self.has.setdefault(member, set()).difference_update(partitions)

    def reads(self, partition: int, first: int, last: int) -> None:
        """Note that a member has read these records."""
        with self._lock:
            self.read.update((partition, offset) for offset in range(first, last + 1))

    async def until(self, sizes: dict[str, int]) -> None:
        """Return when the members have so many partitions each."""
        async with asyncio.timeout(WAIT_S):
            while {member: len(owned) for member, owned in self.has.items() if owned} != sizes:
                await asyncio.sleep(0.02)

    async def until_read(self, each: int) -> None:
        """Return when so many records of each partition were read."""
        async with asyncio.timeout(WAIT_S):
            while len(self.read) < each * PARTITIONS:
                await asyncio.sleep(0.02)


class Listener(RebalanceListener):
    """Records the notifications of our member."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    async def on_partitions_revoked(self, revoked: tuple[TopicPartition, ...]) -> None:
        """Partitions go."""
        self._ledger.went(self._name, [number for _, number in revoked])

    async def on_partitions_assigned(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Partitions come."""
        self._ledger.came(self._name, [number for _, number in assigned])

    async def on_partitions_lost(self, lost: tuple[TopicPartition, ...]) -> None:
        """Partitions are gone."""
        self._ledger.went(self._name, [number for _, number in lost])


@asynccontextmanager
async def ours(cluster: Cluster, topic: str, group: str, ledger: Ledger, **more: Any) -> AsyncIterator[None]:
    """A member of ours."""
    name = "ours" + "".join(more.values())

    async def read(consumer: Consumer) -> None:
        while True:
            for (_, number), records in (await consumer.getmany(timeout_ms=50)).items():
                ledger.reads(number, records[0].offset, records[-1].offset)

    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        listener=Listener(ledger, name),
        **{"group_protocol": "consumer", **more},
    ) as consumer:
        reading = asyncio.create_task(read(consumer))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def librdkafka(cluster: Cluster, topic: str, group: str, ledger: Ledger) -> AsyncIterator[None]:
    """A member of confluent-kafka."""
    ended = threading.Event()

    def came(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        ledger.came("librdkafka", [partition.partition for partition in partitions])

    def went(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        ledger.went("librdkafka", [partition.partition for partition in partitions])

    def live() -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
            }
        )
        consumer.subscribe([topic], on_assign=came, on_revoke=went, on_lost=went)
        while not ended.is_set():
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    ledger.reads(message.partition(), message.offset(), message.offset())
        consumer.close()

    living = asyncio.create_task(asyncio.to_thread(live))
    try:
        yield
    finally:
        ended.set()
        await living


@asynccontextmanager
async def javas(cluster: Cluster, topic: str, group: str, ledger: Ledger, protocol: str) -> AsyncIterator[None]:
    """A member of Kafka's VerifiableConsumer."""
    command = java_command(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", group),
        *("--group-protocol", protocol, "--reset-policy", "earliest"),
        options=("-Xmx256m",),
    )
    process = await spawn_async(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)

    async def follow() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            numbers = [partition["partition"] for partition in event.get("partitions", [])]
            if event["name"] == "partitions_assigned":
                ledger.came("java", numbers)
            elif event["name"] == "partitions_revoked":
                ledger.went("java", numbers)
            elif event["name"] == "records_consumed":
                for partition in event["partitions"]:
                    ledger.reads(partition["partition"], partition["minOffset"], partition["maxOffset"])

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), WAIT_S)
        await following


async def fill(cluster: Cluster, topic: str) -> None:
    """More records in each partition."""
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                await producer.send(topic, b"%d" % number, partition=partition)


async def test_our_members_share_with_javas_and_librdkafkas(balancing: Cluster, topic: str, group: str) -> None:
    """They come one by one and go in another order, while records are written."""
    await come_and_go(balancing, topic, group, "consumer")


async def test_a_classic_member_among_them_is_as_good_as_any(balancing: Cluster, topic: str, group: str) -> None:
    """Java's."""
    await come_and_go(balancing, topic, group, "classic")


async def come_and_go(balancing: Cluster, topic: str, group: str, javas_protocol: str) -> None:
    """Each record is read, and no partition has two owners."""
    async with Admin(balancing.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
    await fill(balancing, topic)
    ledger = Ledger()
    async with librdkafka(balancing, topic, group, ledger):
        await ledger.until({"librdkafka": 6})
        async with ours(balancing, topic, group, ledger):
            await ledger.until({"librdkafka": 3, "ours": 3})
            await fill(balancing, topic)
            async with javas(balancing, topic, group, ledger, javas_protocol):
                await ledger.until({"librdkafka": 2, "ours": 2, "java": 2})
                await fill(balancing, topic)
                await ledger.until_read(3 * RECORDS)
            await ledger.until({"librdkafka": 3, "ours": 3})
            await fill(balancing, topic)
            await ledger.until_read(4 * RECORDS)
        await ledger.until({"librdkafka": 6})
    assert ledger.twice == []
    assert ledger.read == {(number, offset) for number in range(PARTITIONS) for offset in range(4 * RECORDS)}
