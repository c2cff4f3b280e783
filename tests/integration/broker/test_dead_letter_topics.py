"""Dead-letter topics of share groups (KIP-1191) on a real node: what they get, what holds them up, and a crash at each step."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.broker.features_scenarios import begin_at
from tests.support.patience import patient

from busway import Admin, BrokerError, Consumer, NewTopic, Producer, Record, ShareConsumer, TopicPartition
from busway.admin.features import FeatureLevels
from busway_bus.metadata.features import SHARE_VERSION, SHARE_VERSION_WITH_DEAD_LETTERS
from busway_bus.share import partition_dead_letters
from busway_bus.share.dead_letters import DeadLetters
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.slow
TOPIC, GROUP, DEAD = "work", "workers", "dlq.work"
PATIENCE_S = patient(60.0)
AUTO_CREATE = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
ALLOWED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture(autouse=True)
def with_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """New clusters have them, and little is waited for."""
    begin_at(monkeypatch, SHARE_VERSION, SHARE_VERSION_WITH_DEAD_LETTERS)
    monkeypatch.setattr(partition_dead_letters, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(partition_dead_letters, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """One node."""
    async with LocalCluster(properties={"group.share.min.record.lock.duration.ms": "1000"}) as running:
        yield running


async def prepare(
    cluster: LocalCluster, *, dead: bool = True, settings: dict[str, str] | None = None, partitions: int = 1
) -> None:
    """A topic, its dead-letter topic, and the group's settings."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions, 1)])
        if dead:
            await admin.create_topics([NewTopic(DEAD, 1, 1, configs=ALLOWED)])
        own = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": DEAD, **(settings or {})}
        await admin.alter_group_configs(GROUP, own)


async def send(cluster: LocalCluster, *values: bytes, **options: Any) -> None:
    """Write records with keys to the first partition."""
    async with Producer(cluster.bootstrap_servers, **options) as producer:
        for value in values:
            await producer.send(TOPIC, value, key=b"key of " + value, headers=[("own", b"header")], partition=0)
        await producer.flush()


def worker(cluster: LocalCluster) -> ShareConsumer:
    """A member of the group."""
    return ShareConsumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, fetch_max_wait_ms=100)


async def take(consumer: ShareConsumer, count: int) -> list[Record]:
    """So many records."""
    letters: list[Record] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(letters) < count:
            for records in (await consumer.getmany(timeout_ms=500, max_records=count - len(letters))).values():
                letters += records
    return letters


async def handle(cluster: LocalCluster, **kinds: Any) -> None:
    """Take as many records, and say of each what its value says."""
    async with worker(cluster) as consumer:
        for record in await take(consumer, len(kinds)):
            await consumer.acknowledge(record, kinds[(record.value or b"").decode()])


async def dead_letters(cluster: LocalCluster, count: int, topic: str = DEAD) -> list[Record]:
    """The first dead letters."""
    letters: list[Record] = []
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(PATIENCE_S):
            while len(letters) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    letters += records
    return letters


@contextlib.asynccontextmanager
async def fetching(consumer: ShareConsumer) -> AsyncIterator[None]:
    """A member that fetches, so that its partitions are taken up, and gets nothing: what is given up comes to no member."""

    async def fetch() -> None:
        while True:
            assert await consumer.getmany(timeout_ms=200) == {}

    task = asyncio.ensure_future(fetch())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until_nothing_is_left(cluster: LocalCluster) -> None:
    """Returns when the group is done with all records."""
    async with Admin(cluster.bootstrap_servers) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            offsets = await admin.list_share_group_offsets(GROUP)
            if offsets and all(at.lag == 0 for at in offsets.values()):
                return


def headers(record: Record) -> dict[str, str]:
    """What a dead letter says."""
    return {name: (value or b"").decode() for name, value in record.headers}


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("copy", [False, True])
async def test_rejected_records_are_there_with_their_headers(
    cluster: LocalCluster, copy: bool, compression: Any
) -> None:
    """As Kafka writes them; key and value go along where the group wants it."""
    await prepare(cluster, settings={"errors.deadletterqueue.copy.record.enable": str(copy).lower()})
    await send(cluster, b"a", b"b", b"c", compression_type=compression, linger_ms=50)
    await handle(cluster, a="accept", b="reject", c="reject")
    letters = await dead_letters(cluster, 2)
    expected = [(b"key of b", b"b"), (b"key of c", b"c")] if copy else [(None, None)] * 2
    assert [(letter.key, letter.value) for letter in letters] == expected
    assert [headers(letter) for letter in letters] == [
        {
            "__dlq.errors.topic": TOPIC,
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": str(offset),
            "__dlq.errors.group": GROUP,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": "Offset rejected by client.",
        }
        for offset in (1, 2)
    ]
    await until_nothing_is_left(cluster)


async def test_records_that_were_delivered_too_often_are_there(cluster: LocalCluster) -> None:
    """Released ones, and those whose locks have ended; no consumer has asked for it."""
    await prepare(cluster, settings={"share.delivery.count.limit": "2", "share.record.lock.duration.ms": "1000"})
    await send(cluster, b"released", b"silent")
    async with worker(cluster) as consumer:
        for _ in range(4):  # each at once, while its lock holds
            (record,) = await take(consumer, 1)
            if record.value == b"released":
                await consumer.acknowledge(record, "release")
        letters = await dead_letters(cluster, 2)
    offsets_and_counts = {
        (headers(letter)["__dlq.errors.offset"], headers(letter)["__dlq.errors.delivery.count"]) for letter in letters
    }
    assert offsets_and_counts == {("0", "2"), ("1", "2")}
    assert {headers(letter)["__dlq.errors.message"] for letter in letters} == {
        "Offset delivery count exceeded the threshold."
    }


async def test_the_partition_is_that_of_the_source(cluster: LocalCluster) -> None:
    """By its number, as far as there are as many."""
    await prepare(cluster, partitions=3, dead=False)
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(DEAD, 2, 1, configs=ALLOWED)])
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(3):
            await producer.send(TOPIC, b"%d" % number, partition=number)
        await producer.flush()
    async with worker(cluster) as consumer:
        for record in await take(consumer, 3):
            await consumer.acknowledge(record, "reject")
    letters = await dead_letters(cluster, 2)
    assert {headers(letter)["__dlq.errors.partition"] for letter in letters} == {"0", "2"}


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    ("topic", "configs", "reason", "mended"),
    [
        (None, {}, "there is no topic dlq.work", "create"),
        (DEAD, {}, "does not allow it", "allow"),
        (DEAD, {**ALLOWED, "max.message.bytes": "100"}, "max.message.bytes allows 100", "larger"),
        (DEAD, {**ALLOWED, "cleanup.policy": "compact"}, "key", "delete"),
    ],
)
async def test_what_cannot_be_written_waits_and_holds_up_nobody(
    cluster: LocalCluster,
    caplog: pytest.LogCaptureFixture,
    topic: str | None,
    configs: dict[str, str],
    reason: str,
    mended: str,
    crash: bool,
) -> None:
    """The log says why and what to do; other records go on; once it is mended the letters are there, over a crash, too."""
    await prepare(cluster, dead=False)
    async with Admin(cluster.bootstrap_servers) as admin:
        if topic is not None:
            await admin.create_topics([NewTopic(topic, 1, 1, configs=configs)])
    await send(cluster, b"a", b"b", b"c")
    async with worker(cluster) as consumer:
        with caplog.at_level(logging.ERROR, "busway.share"):
            (first,) = await take(consumer, 1)
            await consumer.acknowledge(first, "reject")
            async with asyncio.timeout(PATIENCE_S):
                while reason not in caplog.text:
                    await asyncio.sleep(0.01)
        for record in await take(consumer, 2):
            await consumer.acknowledge(record)
    assert caplog.text.count("cannot be written") == 1
    if crash:
        await cluster.crash()
        await cluster.start()
    async with Admin(cluster.bootstrap_servers) as admin, worker(cluster) as consumer, fetching(consumer):
        if mended == "create":
            await admin.create_topics([NewTopic(DEAD, 1, 1, configs=ALLOWED)])
        elif mended == "allow":
            await admin.alter_configs(DEAD, ALLOWED)
        elif mended == "larger":
            await admin.alter_configs(DEAD, {"max.message.bytes": "10000"})
        else:
            await admin.alter_configs(DEAD, {"cleanup.policy": "delete"})
        (letter,) = await dead_letters(cluster, 1)
        assert headers(letter)["__dlq.errors.offset"] == "0"
        await until_nothing_is_left(cluster)


async def test_more_wait_than_may_be_under_way(cluster: LocalCluster) -> None:
    """Records that wait only for their dead letters do not count as locked ones: the others of their partition still come."""
    await prepare(cluster, dead=False, settings={"share.partition.max.record.locks": "100"})
    await send(cluster, *(b"%d" % number for number in range(350)))
    async with worker(cluster) as consumer:
        for _ in range(7):
            for record in await take(consumer, 50):
                consumer.acknowledge(record, "reject")
            await consumer.commit()
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(DEAD, 1, 1, configs=ALLOWED)])
        letters = await dead_letters(cluster, 350)
    assert [int(headers(letter)["__dlq.errors.offset"]) for letter in letters] == list(range(350))
    await until_nothing_is_left(cluster)


async def test_without_its_topic_a_group_gives_up_what_waits(cluster: LocalCluster) -> None:
    """Who clears the setting wants no dead letters any more."""
    await prepare(cluster, dead=False)
    await send(cluster, b"a")
    async with worker(cluster) as consumer:
        (record,) = await take(consumer, 1)
        await consumer.acknowledge(record, "reject")
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.alter_group_configs(GROUP, {"errors.deadletterqueue.topic.name": ""})
        await until_nothing_is_left(cluster)


async def test_the_topic_is_made_where_the_broker_may() -> None:
    """It allows dead letters, and its name has to have the broker's prefix."""
    async with LocalCluster(properties={**AUTO_CREATE, "errors.deadletterqueue.topic.name.prefix": "dead-"}) as cluster:
        await prepare(cluster, dead=False, settings={"errors.deadletterqueue.topic.name": "dead-work"})
        await send(cluster, b"a")
        await handle(cluster, a="reject")
        assert len(await dead_letters(cluster, 1, "dead-work")) == 1
        async with Admin(cluster.bootstrap_servers) as admin:
            configs = await admin.describe_configs("dead-work")
        assert configs["errors.deadletterqueue.group.enable"].value == "true"
        assert configs["message.timestamp.type"].value == "CreateTime"


async def test_what_is_too_large_with_its_value_goes_without(cluster: LocalCluster) -> None:
    """The headers say where it is."""
    await prepare(cluster, dead=False, settings={"errors.deadletterqueue.copy.record.enable": "true"})
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(DEAD, 1, 1, configs={**ALLOWED, "max.message.bytes": "1000"})])
    await send(cluster, b"x", b"l" * 5000, b"y")
    async with worker(cluster) as consumer:
        for record in await take(consumer, 3):
            consumer.acknowledge(record, "reject")
        await consumer.commit()
        letters = await dead_letters(cluster, 3)
    assert [letter.value for letter in letters] == [b"x", None, b"y"]


@pytest.mark.parametrize("moment", ["before the letter", "after the letter"])
async def test_a_crash_around_the_letter_loses_none(
    cluster: LocalCluster, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker dies between keeping the rejection and writing the letter, or between that and keeping that it is written: once, or twice."""
    await prepare(cluster)
    await send(cluster, b"a", b"b")
    reached, write = asyncio.Event(), DeadLetters.write

    async def stopped(self: DeadLetters, *arguments: Any) -> Any:
        if moment == "after the letter":
            await write(self, *arguments)
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(DeadLetters, "write", stopped)
    async with worker(cluster) as consumer:
        for record in await take(consumer, 2):
            await consumer.acknowledge(record, "reject" if record.value == b"a" else "accept")
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
        await cluster.crash()
        monkeypatch.setattr(DeadLetters, "write", write)
        await cluster.start()
        async with fetching(consumer):
            await until_nothing_is_left(cluster)
    count = 2 if moment == "after the letter" else 1
    letters = await dead_letters(cluster, count)
    assert [headers(letter)["__dlq.errors.offset"] for letter in letters] == ["0"] * count


async def test_a_disk_that_fails_once_is_tried_again(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that passes by is reported to no member."""
    await prepare(cluster)
    await send(cluster, b"a")
    write, problems = DeadLetters.write, [KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3

    async def failing(self: DeadLetters, *arguments: Any) -> Any:
        if problems:
            raise problems.pop()
        return await write(self, *arguments)

    monkeypatch.setattr(DeadLetters, "write", failing)
    await handle(cluster, a="reject")
    assert len(await dead_letters(cluster, 1)) == 1


async def test_what_goes_wrong_unexpectedly_is_told_and_tried_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug while a letter is written is logged with where it is; the next attempt follows without another write."""
    await prepare(cluster)
    await send(cluster, b"a")
    write, problems = DeadLetters.write, [ZeroDivisionError("planted")] * 2

    async def failing(self: DeadLetters, *arguments: Any) -> Any:
        if problems:
            raise problems.pop()
        return await write(self, *arguments)

    monkeypatch.setattr(DeadLetters, "write", failing)
    with caplog.at_level(logging.ERROR, "busway.share"):
        await handle(cluster, a="reject")
        assert len(await dead_letters(cluster, 1)) == 1
        await until_nothing_is_left(cluster)
    log_records = [record for record in caplog.records if record.name == "busway.share"]
    assert [record.exc_info is not None for record in log_records] == [True, True]
    assert f"{TOPIC}-0" in log_records[0].getMessage()


async def test_the_level_is_raised_and_lowered_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised, a group has dead letters at once. It cannot be lowered while there are settings: each is named, and how to delete it."""
    begin_at(monkeypatch, SHARE_VERSION, 1)
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        assert (await admin.describe_features()).features[SHARE_VERSION] == FeatureLevels(SHARE_VERSION, 0, 2, 1)
        await admin.update_features({SHARE_VERSION: 2})
        await prepare(cluster)
        await send(cluster, b"a", b"b")
        await handle(cluster, a="reject", b="accept")
        assert len(await dead_letters(cluster, 1)) == 1
        for level in (1, 0):
            for reason in (
                f"topic {DEAD} has errors.deadletterqueue.group.enable, which needs level 2",
                "--delete-config",
            ):
                with pytest.raises(BrokerError, match=reason) as refused:
                    await admin.update_features({SHARE_VERSION: level}, downgrade=True)
                assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
        await admin.alter_configs(DEAD, {"errors.deadletterqueue.group.enable": None})
        with pytest.raises(
            BrokerError, match=f"group {GROUP} has errors.deadletterqueue.topic.name, which needs level 2"
        ):
            await admin.update_features({SHARE_VERSION: 1}, downgrade=True)
        await admin.alter_group_configs(GROUP, {"errors.deadletterqueue.topic.name": None})
        await admin.update_features({SHARE_VERSION: 1}, downgrade=True)
        await send(cluster, b"c", b"d")
        await handle(cluster, c="reject", d="accept")
        await until_nothing_is_left(cluster)
        with pytest.raises(BrokerError, match=r"needs share.version=2, and this cluster has 1"):
            await admin.alter_group_configs(GROUP, {"errors.deadletterqueue.topic.name": DEAD})
        assert await admin.list_offsets({TopicPartition(DEAD, 0): -1}) == {TopicPartition(DEAD, 0): 1}


async def test_what_the_level_does_not_have_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With share.version 1, as Kafka 4.3 has it, settings are refused with what to do, and not shown."""
    begin_at(monkeypatch, SHARE_VERSION, 1)
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        for name in ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"):
            with pytest.raises(BrokerError, match=f"{name}.*needs share.version=2.*has 1"):
                await admin.alter_group_configs(GROUP, {name: "true"})
        with pytest.raises(BrokerError, match=r"errors.deadletterqueue.group.enable.*needs share.version=2"):
            await admin.create_topics([NewTopic(DEAD, 1, 1, configs=ALLOWED)])
        await admin.create_topics([NewTopic(DEAD, 1, 1)])
        with pytest.raises(BrokerError, match=r"errors.deadletterqueue.group.enable.*needs share.version=2"):
            await admin.alter_configs(DEAD, ALLOWED)
        assert not [name for name in await admin.describe_configs(DEAD) if "deadletter" in name]


async def test_a_topic_of_the_broker_is_none(cluster: LocalCluster) -> None:
    """In Kafka's words."""
    async with Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match="must not start with '__'"):
            await admin.alter_group_configs(GROUP, {"errors.deadletterqueue.topic.name": "__consumer_offsets"})
