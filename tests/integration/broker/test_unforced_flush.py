"""Topics with durability=interval: what they wrote is synced although no client waits for it, and no other log is looked at for that."""

import asyncio

from tests.support.patience import patient

from busway import Admin, NewTopic, Producer
from busway_bus.replication.partition import Partition
from busway_bus.testing.local_cluster import LocalCluster


async def written(cluster: LocalCluster, topic: str) -> Partition:
    """A topic's partition, with one record that is acknowledged."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"1")
    return cluster.node.services.replicas.find(topic, 0)


async def flushed(partition: Partition) -> None:
    """Returns when all of it is on disk."""
    async with asyncio.timeout(patient(30)):
        while partition.log.flushed_offset < partition.log.end_offset:
            await asyncio.sleep(0.01)


async def test_what_was_written_is_synced_and_then_forgotten(cluster: LocalCluster) -> None:
    """Within the next intervals; those with another durability are never looked at."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics(
            [NewTopic(name, 1, configs={"durability": name}) for name in ("interval", "os", "flush")]
        )
    partitions = {name: await written(cluster, name) for name in ("interval", "os", "flush")}
    logs = cluster.node.services.replicas.logs
    assert set(logs._unforced) <= {partitions["interval"]}
    await flushed(partitions["interval"])
    async with asyncio.timeout(patient(30)):
        while logs._unforced:
            await asyncio.sleep(0.01)
    assert partitions["os"].log.flushed_offset < partitions["os"].log.end_offset


async def test_a_topic_that_becomes_one_of_them_is_synced(cluster: LocalCluster) -> None:
    """What it wrote before counts, too."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("topic", 1, configs={"durability": "os"})])
        partition = await written(cluster, "topic")
        await admin.alter_configs("topic", {"durability": "interval"})
        await flushed(partition)


async def test_a_topic_that_is_deleted_is_forgotten(cluster: LocalCluster) -> None:
    """Its log is closed: no thread syncs that."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("topic", 1, configs={"durability": "interval"})])
        partition = await written(cluster, "topic")
        await admin.delete_topics(["topic"])
    logs = cluster.node.services.replicas.logs
    logs._unforced[partition] = None
    logs.flush_intervals()
    assert not logs._unforced
