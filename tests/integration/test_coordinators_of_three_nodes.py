"""Groups, transactions and share groups of three real nodes while the nodes that coordinate them are killed."""

import pytest
from tests.integration.test_three_nodes import created, creation
from tests.support.waiting import until

from busway import Consumer, Producer, TopicPartition
from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.share.consumer import ShareConsumer
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.features import SHARE_VERSION, SHARE_VERSION_WITH_DEAD_LETTERS
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow
PARTITION = TopicPartition("t", 0)


def leader_of(nodes: LocalNodes, topic: str) -> int:
    """The node that leads the only partition of a topic, by what a running node knows."""
    node = next(iter(nodes.nodes.values()))
    return node.services.image.topics[topic].partitions[0].leader


async def kill_leader(nodes: LocalNodes, topic: str) -> int:
    leader = leader_of(nodes, topic)
    await nodes.kill(leader)
    return leader


async def filled(nodes: LocalNodes, count: int) -> None:
    """A topic with records that are numbers."""
    assert await created(nodes, 1, creation("t", partitions=1)) == ErrorCode.NONE
    async with Producer(nodes.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send("t", str(number).encode())
        await producer.flush()


async def test_a_group_goes_on_when_its_coordinator_is_killed() -> None:
    """Its member keeps its generation, and commits go on from those that were acknowledged."""
    async with LocalNodes() as nodes:
        await filled(nodes, 20)
        async with Consumer(
            "t",
            bootstrap_servers=nodes.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            for _ in range(10):
                await consumer.getone()
            await consumer.commit()
            before = consumer.group_metadata()
            killed = await kill_leader(nodes, OFFSETS_TOPIC)
            committed = await consumer.committed(PARTITION)
            assert committed is not None
            assert committed.offset == 10
            for _ in range(10):
                await consumer.getone()
            await consumer.commit()
            assert consumer.group_metadata() == before
            await nodes.restart(killed)
            image = nodes.nodes[killed].services.image
            await until(lambda: len(nodes.nodes[killed].services.image.topics[OFFSETS_TOPIC].partitions[0].isr) == 3)
            assert image.topics[OFFSETS_TOPIC].partitions[0].leader != -1
            await kill_leader(nodes, OFFSETS_TOPIC)
            committed = await consumer.committed(PARTITION)
            assert committed is not None
            assert committed.offset == 20


async def test_exactly_once_while_coordinators_are_killed() -> None:
    """Records are copied with their offsets in transactions; the coordinators of both are killed in turn, and return."""
    count = 120
    async with LocalNodes() as nodes:
        await filled(nodes, count)
        assert await created(nodes, 1, creation("out", partitions=3)) == ErrorCode.NONE
        consumer = Consumer(
            "t",
            bootstrap_servers=nodes.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=4,
        )
        async with consumer, Producer(nodes.bootstrap_servers, transactional_id="copies") as producer:
            copied = 0
            kills = {count // 4: TRANSACTIONS_TOPIC, count // 2: OFFSETS_TOPIC, 3 * count // 4: "t"}
            killed: int | None = None
            while copied < count:
                async with producer.transaction(consumer):
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        for record in records:
                            assert record.value is not None
                            await producer.send("out", record.value, key=record.value)
                            copied += 1
                            if copied in kills:
                                if killed is not None:
                                    await nodes.restart(killed)
                                    await until(lambda: all_in_sync(nodes))
                                killed = await kill_leader(nodes, kills[copied])
        async with Consumer(
            "out",
            bootstrap_servers=nodes.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader:
            values = [(await reader.getone()).value for _ in range(count)]
            assert sorted(values, key=lambda value: int(value or b"")) == [
                str(number).encode() for number in range(count)
            ]
            assert not await reader.getmany(timeout_ms=500)


def all_in_sync(nodes: LocalNodes) -> bool:
    image = next(iter(nodes.nodes.values())).services.image
    return all(len(partition.isr) == 3 for topic in image.topics.values() for partition in topic.partitions)


@pytest.mark.parametrize("topic", [SHARE_STATE_TOPIC, OFFSETS_TOPIC, "t"])
async def test_a_share_group_goes_on_when_a_broker_of_it_is_killed(topic: str) -> None:
    """What was accepted is not delivered again, and the rest is: by the share coordinator, the group's, the partition's leader."""
    count = 60
    async with LocalNodes() as nodes:
        await filled(nodes, count)
        async with Admin(nodes.bootstrap_servers) as admin:
            await admin.alter_group_configs("g", {"share.auto.offset.reset": "earliest"})
        accepted: list[bytes | None] = []
        async with ShareConsumer("t", bootstrap_servers=nodes.bootstrap_servers, group_id="g") as consumer:
            while len(accepted) < count:
                polled = await consumer.getmany(timeout_ms=1000, max_records=10)
                accepted += [record.value for records in polled.values() for record in records]
                await consumer.commit()
                if len(accepted) >= count // 2 and len(nodes.nodes) == 3:
                    await kill_leader(nodes, topic)
        assert sorted(accepted, key=lambda value: int(value or b"")) == [
            str(number).encode() for number in range(count)
        ]


async def test_dead_letters_and_lag_of_partitions_on_all_nodes() -> None:
    """A rejected record's letter goes to the leader of its partition of the dead-letter topic, whichever node leads the record's."""
    count = 30
    async with LocalNodes() as nodes:
        assert await created(nodes, 1, creation("t", partitions=6)) == ErrorCode.NONE
        async with Admin(nodes.bootstrap_servers) as admin:
            await admin.update_features({SHARE_VERSION: SHARE_VERSION_WITH_DEAD_LETTERS})
            await admin.create_topics(
                [NewTopic("dlq.t", 4, 3, configs={"errors.deadletterqueue.group.enable": "true"})]
            )
            settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.t"}
            await admin.alter_group_configs("g", settings)
            async with Producer(nodes.bootstrap_servers) as producer:
                for number in range(count):
                    await producer.send("t", str(number).encode(), partition=number % 6)
                await producer.flush()
            rejected = 0
            options = {"group_id": "g", "acknowledgement_mode": "explicit"}
            async with ShareConsumer("t", bootstrap_servers=nodes.bootstrap_servers, **options) as consumer:
                while rejected < count:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        rejected += len(records)
                        for record in records:
                            await consumer.acknowledge(record, "reject")

                async def caught_up() -> bool:
                    offsets = await admin.list_share_group_offsets("g")
                    return [offset.lag for offset in offsets.values()] == [0] * 6

                await until(caught_up)
        async with Consumer(
            "dlq.t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest"
        ) as letters:
            places = {(record.partition, record.offset) for record in [await letters.getone() for _ in range(count)]}
        assert len(places) == count
        assert {partition for partition, _ in places} == {0, 1, 2, 3}
