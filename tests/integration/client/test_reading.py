"""What a reader may rely on, on both brokers: nothing skipped by breaking off, filters, damage, slow listeners, growth."""

import asyncio

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms

from busway import Admin, Consumer, DamagedData, NewTopic, Producer, RebalanceListener, TopicPartition
from busway.consumer.snapshot import read_to_end
from busway.types import OffsetAndMetadata

pytestmark = pytest.mark.slow
FAST = {"heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(6_000), "auto_offset_reset": "earliest"}


async def fill(cluster: Cluster, topic: str, count: int, partitions: int = 1) -> None:
    """Numbered records, in turn on each partition."""
    async with Admin(cluster.bootstrap_servers) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topics([NewTopic(topic, partitions)])
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


async def test_a_loop_that_breaks_off_commits_only_what_it_saw(cluster: Cluster, topic: str, group: str) -> None:
    """The rest of what was fetched is read by the next reader, and by this one if it goes on."""
    await fill(cluster, topic, 50)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **FAST) as consumer:
        async for record in consumer:
            if record.offset == 9:
                break
        assert (await consumer.getone()).offset == 10
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **FAST) as consumer:
        assert (await consumer.getone()).offset == 11


async def test_a_block_left_with_an_error_commits_only_what_was_handled(
    cluster: Cluster, topic: str, group: str
) -> None:
    """The records handed out last come again."""
    await fill(cluster, topic, 30)
    with pytest.raises(RuntimeError, match="broken"):  # noqa: PT012 - the block that is left is what is tested
        async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **FAST) as consumer:
            for _ in range(2):
                polled = await consumer.getmany(timeout_ms=patient_ms(10_000), max_records=10)
            assert len(polled) == 1
            raise RuntimeError("broken")
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **FAST) as consumer:
        assert (await consumer.getone()).offset == 10


async def test_a_reader_of_one_partition_is_not_held_up_by_another(cluster: Cluster, topic: str) -> None:
    """Records that wait in a partition that is not asked for neither stop the loop nor come out."""
    await fill(cluster, topic, 20, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(patient(20)):
            values = [(await consumer.getone(first)).value for _ in range(10)]
            assert values == [b"%d" % number for number in range(0, 20, 2)]
            assert await consumer.getmany(first, timeout_ms=50) == {}
            waiting = asyncio.ensure_future(consumer.getone(first))
            await asyncio.sleep(0)
            await fill(cluster, topic, 1)
            assert (await waiting).value == b"0"
            assert len((await consumer.getmany(second, timeout_ms=patient_ms(5_000)))[second]) == 10


async def test_a_topic_that_others_write_is_read_to_its_end(cluster: Cluster, topic: str) -> None:
    """The end is that of the beginning; what comes meanwhile neither shows nor blocks."""
    await fill(cluster, topic, 100, partitions=3)
    async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer, asyncio.timeout(patient(20)):
        values = []
        async for record in read_to_end(cluster.bootstrap_servers, topic):
            values.append(record.value)
            await producer.send_and_wait(topic, b"late", partition=record.partition)
    assert sorted(values, key=lambda value: int(value or b"")) == [b"%d" % number for number in range(100)]
    assert [r async for r in read_to_end(cluster.bootstrap_servers, topic, partitions=[])] == []


async def test_damage_in_a_partition_loses_nothing_of_the_others(cluster: Cluster, topic: str) -> None:
    """The records before the damage come first; the error names the offset to seek to, and comes as long as what is fetched is damaged."""
    await fill(cluster, topic, 20, partitions=2)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(patient(20)):
            while len([assigned for assigned in consumer._fetcher.assigned.values() if assigned.buffered]) < 2:
                await asyncio.sleep(0.01)
            assigned = consumer._fetcher.assigned[bad]
            batch = bytearray(assigned.chunks.popleft())
            batch[-1] ^= 1
            assigned.chunks.appendleft(memoryview(bytes(batch)))
            values = [record.value for record in (await consumer.getmany(good, timeout_ms=100))[good]]
            assert values == [b"%d" % number for number in range(0, 20, 2)]
            with pytest.raises(DamagedData, match=f"{topic}-1 at offset 0.*seek to 10"):
                await consumer.getmany(timeout_ms=100)
            assert (await consumer.getone(bad)).value == b"1"  # on the broker nothing is wrong, or it was put right
            assert await consumer.position(good) == 10


async def test_a_listener_may_take_longer_than_the_session(cluster: Cluster, topic: str, group: str) -> None:
    """The member shows that it lives while tables are loaded, so it is not thrown out and asked again."""
    await fill(cluster, topic, 5)

    class Loading(RebalanceListener):
        calls = 0

        async def on_partitions_assigned(self, assigned: object) -> None:
            self.calls += 1
            await asyncio.sleep(2.5)  # longer than the session, which nothing but time shows

    listener = Loading()
    options = {**FAST, "session_timeout_ms": 1_500}
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, listener=listener, **options
    ) as consumer:
        async with asyncio.timeout(patient(20)):
            assert (await consumer.getone()).value == b"0"
            await consumer.commit()
    assert listener.calls == 1


async def test_a_listener_commits_before_the_reader_leaves(cluster: Cluster, topic: str, group: str) -> None:
    """stop() gives the partitions up as a rebalance does."""
    await fill(cluster, topic, 10)

    class Committing(RebalanceListener):
        async def on_partitions_revoked(self, revoked: object) -> None:
            await consumer.commit({TopicPartition(topic, 0): 4})

    consumer = Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        listener=Committing(),
        enable_auto_commit=False,
        **FAST,
    )
    async with consumer:
        await consumer.getone()
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **FAST) as consumer:
        assert (await consumer.getone()).offset == 4


async def test_a_quiet_partition_does_not_slow_a_busy_one(cluster: Cluster, topic: str) -> None:
    """A long poll for what does not come is cut short while another partition has more."""
    await fill(cluster, topic, 2, partitions=2)
    async with Producer(cluster.bootstrap_servers, batch_size=200) as producer:
        for number in range(3_000):
            await producer.send(topic, b"%d" % number, partition=0)
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=patient_ms(3_000),
        max_partition_fetch_bytes=8_000,
    ) as consumer:
        count = 0
        async with asyncio.timeout(patient(15)):
            while count < 3_002:
                count += sum(map(len, (await consumer.getmany(timeout_ms=patient_ms(5_000), max_records=30)).values()))
                for _ in range(5):  # a reader that works on what it got
                    await asyncio.sleep(0)


async def test_a_listener_that_fails_is_told_to_the_reader(cluster: Cluster, topic: str, group: str) -> None:
    """Instead of a reader that waits for ever in no group."""
    await fill(cluster, topic, 1)

    class Broken(RebalanceListener):
        async def on_partitions_assigned(self, assigned: object) -> None:
            raise ValueError("no tables")

    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, listener=Broken(), **FAST
    ) as consumer:
        with pytest.raises(ValueError, match="no tables"):
            async with asyncio.timeout(patient(20)):
                await consumer.getone()


async def test_new_partitions_are_found(cluster: Cluster, topic: str, group: str) -> None:
    """Without an error to hint at them: metadata is asked for again when it is old, and the group shares again."""
    await fill(cluster, topic, 1)
    options = {**FAST, "metadata_max_age_ms": 100}
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options) as consumer:
        async with asyncio.timeout(patient(20)):
            assert (await consumer.getone()).value == b"0"
            async with Admin(cluster.bootstrap_servers) as admin:
                await admin.create_partitions({topic: 3})
            while len(consumer.assignment()) < 3:
                await consumer.getmany(timeout_ms=20)


async def test_a_commit_of_an_earlier_generation_is_not_sent_in_the_name_of_a_later_one(
    cluster: Cluster, topic: str, group: str
) -> None:
    """It would undo what the present owner has committed, when the partition was lost and given back meanwhile."""
    from busway import CommitFailed
    from busway_protocol.errors import ErrorCode

    await fill(cluster, topic, 10)
    options = {**FAST, "heartbeat_interval_ms": 5_000}
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options) as consumer:
        await consumer.getone()
        member = consumer._group
        assert member is not None
        coordinator = member.offsets
        partition = TopicPartition(topic, 0)

        async def moved(offsets: object) -> ErrorCode:
            member.membership.generation += 1
            member.membership.own(())  # lost, and given back
            member.membership.own([partition])
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        real, coordinator._commit_once = coordinator._commit_once, moved  # type: ignore[method-assign]
        with pytest.raises(CommitFailed, match="joined again"):
            await coordinator.commit({partition: OffsetAndMetadata(5)})
        member.membership.generation -= 1
        coordinator._commit_once = real  # type: ignore[method-assign]
        await consumer.commit({partition: 7})
        committed_offset = await consumer.committed(partition)
        assert committed_offset is not None
        assert committed_offset.offset == 7
