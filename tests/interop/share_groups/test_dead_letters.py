"""Dead-letter topics of share groups, by Kafka's own tools, which are of 4.3.1 and know nothing of them, and over kills of the broker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from busway import AcknowledgementFailed, Admin, Consumer, NewTopic, Producer, Record, ShareConsumer, TopicPartition
from tests.interop.share_groups.conftest import SETTINGS
from tests.support.apache_kafka import java
from tests.support.busway_process import BuswayProcess
from tests.support.programs import held_ports

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
TOPIC, GROUP, DEAD = "given-up", "workers", "dlq.given-up"
TOTAL, ROUNDS, PATIENCE_S = 300, 2, 60.0
SEEN = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": DEAD}
ALLOWED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture
async def broker() -> AsyncIterator[BuswayProcess]:
    """A process that comes back where it was."""
    (port,) = held_ports(1)
    running = BuswayProcess({**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    try:
        await asyncio.to_thread(running.start)
        yield running
    finally:
        await asyncio.to_thread(running.stop)


async def send(at: str, total: int) -> None:
    """Records whose values are numbers."""
    async with Producer(at) as producer:
        for number in range(total):
            await producer.send(TOPIC, b"%d" % number, partition=0)
        await producer.flush()


async def letters(at: str, met: int) -> list[Record]:
    """The dead letters, as soon as they are of so many records."""
    letters_read: list[Record] = []
    async with Consumer(bootstrap_servers=at, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(DEAD, 0)])
        async with asyncio.timeout(PATIENCE_S):
            while len({offset(letter) for letter in letters_read}) < met:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    letters_read += records
    return letters_read


def offset(letter: Record) -> int:
    """Which record it is of."""
    return int(dict(letter.headers)["__dlq.errors.offset"] or b"")


async def tool(name: str, at: str, *arguments: str) -> str:
    """What one of Kafka's tools prints."""
    return await asyncio.to_thread(java, name, "--bootstrap-server", at, *arguments)


async def test_kafkas_tools_turn_them_on_and_fill_them(broker: BuswayProcess) -> None:
    """kafka-features raises the level, kafka-configs sets what is needed, kafka-console-share-consumer rejects."""
    at = broker.bootstrap_servers
    level = ("org.apache.kafka.tools.FeatureCommand", at)
    configs = ("kafka.admin.ConfigCommand", at, "--alter")
    assert "share.version was upgraded to 2." in await tool(*level, "upgrade", "--feature", "share.version=2")
    async with Admin(at) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(DEAD, 1, 1)])
    for kind, name, settings in (
        ("groups", GROUP, {**SEEN, "errors.deadletterqueue.copy.record.enable": "true"}),
        ("topics", DEAD, ALLOWED),
    ):
        added = ",".join(f"{key}={value}" for key, value in settings.items())
        await tool(*configs, "--entity-type", kind, "--entity-name", name, "--add-config", added)
    await send(at, 3)
    consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    await tool(consumer, at, "--topic", TOPIC, "--group", GROUP, "--reject", "--max-messages", "3")
    letters_read = await letters(at, 3)
    assert [(offset(letter), letter.value) for letter in letters_read] == [(0, b"0"), (1, b"1"), (2, b"2")]
    with pytest.raises(AssertionError, match="delete it first"):
        await tool(*level, "downgrade", "--feature", "share.version=1")


async def test_sigkill_between_reject_and_letter(broker: BuswayProcess) -> None:
    """What is rejected while no letter can be written has its letter after a kill, once that can be."""
    at = broker.bootstrap_servers
    async with Admin(at) as admin:
        await admin.update_features({"share.version": 2})
        await admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(DEAD, 1, 1)])
        await admin.alter_group_configs(GROUP, SEEN)
    await send(at, 5)
    async with ShareConsumer(TOPIC, bootstrap_servers=at, group_id=GROUP) as consumer:
        await reject(consumer, 5)
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    async with Admin(at) as admin:
        assert await admin.list_offsets({TopicPartition(DEAD, 0): -1}) == {TopicPartition(DEAD, 0): 0}
        await admin.alter_configs(DEAD, ALLOWED)
    async with ShareConsumer(TOPIC, bootstrap_servers=at, group_id=GROUP) as consumer:
        asking = asyncio.ensure_future(reject(consumer, 1))  # nothing comes; what would has another letter
        try:
            letters_read = await letters(at, 5)
            await until_nothing_is_left(at)
        finally:
            asking.cancel()
            await asyncio.wait([asking])
    assert Counter(map(offset, letters_read)) == dict.fromkeys(range(5), 1)


async def test_sigkill_while_much_is_rejected_loses_no_letter(broker: BuswayProcess) -> None:
    """Whatever the broker took as rejected has a letter; some may have two."""
    at = broker.bootstrap_servers
    async with Admin(at) as admin:
        await admin.update_features({"share.version": 2})
        await admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(DEAD, 1, 1, configs=ALLOWED)])
        await admin.alter_group_configs(GROUP, SEEN)
    await send(at, TOTAL)
    async with ShareConsumer(TOPIC, bootstrap_servers=at, group_id=GROUP, fetch_max_wait_ms=100) as consumer:
        rejected: set[int] = set()
        for _ in range(ROUNDS):
            rejected |= await reject(consumer, TOTAL // (ROUNDS + 2), at_least=True)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        working = asyncio.ensure_future(reject(consumer, TOTAL, at_least=True))
        try:
            await until_nothing_is_left(at)
        finally:
            working.cancel()
            await asyncio.wait([working])
    counts = Counter(map(offset, await letters(at, TOTAL)))
    assert counts.keys() == set(range(TOTAL))
    assert rejected <= counts.keys()


async def reject(consumer: ShareConsumer, count: int, *, at_least: bool = False) -> set[int]:
    """Reject so many records; which the broker has taken. Not all of them where `at_least` and it was gone meanwhile."""
    done: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(done) < count:
            for records in (await consumer.getmany(timeout_ms=200, max_records=10)).values():
                for record in records:
                    try:
                        await consumer.acknowledge(record, "reject")
                    except AcknowledgementFailed:
                        assert at_least
                    else:
                        done.add(record.offset)
    return done


async def until_nothing_is_left(at: str) -> None:
    """Returns when the group is done with all records."""
    async with Admin(at) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            offsets = await admin.list_share_group_offsets(GROUP)
            if offsets and all(offset.lag == 0 for offset in offsets.values()):
                return
