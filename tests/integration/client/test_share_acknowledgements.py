"""What a share consumer says of its records reaches their leaders, whatever else it does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.patience import patient

from busway import AcknowledgementFailed, Admin, NewTopic, Producer, Record, ShareConsumer
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
PATIENCE_S = patient(20.0)
HEARTBEATS = {"group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "200"}


@asynccontextmanager
async def holding(partitions: int, each: int, **settings: str) -> AsyncIterator[tuple[ShareConsumer, list[Record]]]:
    """A member that holds so many records of each partition of a new topic."""
    async with LocalCluster(properties=HEARTBEATS) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topics([NewTopic("jobs", partitions)])
            await admin.alter_group_configs("workers", {"share.auto.offset.reset": "earliest", **settings})
            for number in range(partitions):
                for _ in range(each):
                    await producer.send("jobs", b"job", partition=number)
        async with ShareConsumer(
            "jobs", bootstrap_servers=servers, group_id="workers", acquire_mode="record_limit"
        ) as consumer:
            held: list[Record] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(held) < partitions * each:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        held += records
            yield consumer, held


async def test_what_became_of_records_of_a_partition_that_is_anothers_now_is_told_at_once() -> None:
    """Although the member goes on asking the same leader for records of the other one."""
    async with holding(partitions=2, each=1) as (consumer, held):
        consumer._member.assigned = frozenset(key for key in consumer._member.assigned if key[1] == 0)
        consumer._changed()

        async def read() -> None:
            while True:
                await consumer.getmany(timeout_ms=50)

        reading = asyncio.ensure_future(read())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not any(leader.is_fetching for leader in consumer._fetcher._leaders.values()):
                    await asyncio.sleep(0)
                said = [consumer.acknowledge(record) for record in held]
                await asyncio.gather(*said)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


async def test_renewals_that_a_group_does_not_allow_take_nothing_along() -> None:
    """share.renew.acknowledge.enable=false: the lock is not renewed, and what is accepted at the same time is."""
    async with holding(1, 2, **{"share.renew.acknowledge.enable": "false"}) as (consumer, held):
        renewal, accepted = consumer.acknowledge(held[0], "renew"), consumer.acknowledge(held[1])
        await accepted
        with pytest.raises(AcknowledgementFailed, match=r"share\.renew\.acknowledge\.enable=false"):
            await renewal


async def test_one_record_that_is_not_held_any_more_takes_no_other_along() -> None:
    """What the broker does not know to be this member's is refused alone."""
    async with holding(1, 4) as (consumer, held):
        await consumer.acknowledge(held[1], "release")
        lost = held[1]
        for leader in consumer._fetcher._leaders.values():
            for partition, _ in leader.everything_held():
                partition.hand_out([lost.offset], asyncio.get_running_loop().time() + 30)
        said = [consumer.acknowledge(record) for record in held]
        outcomes = await asyncio.gather(*said, return_exceptions=True)
        assert [isinstance(outcome, AcknowledgementFailed) for outcome in outcomes] == [False, True, False, False]
