"""Brokers that copy partitions from each other: what is acknowledged is never lost, and below the high watermark all have the same bytes."""

from tests.unit.busway_bus.replication.replica_cluster import ReplicaCluster

from busway_bus.testing.world import World


def run(scenario, *, seed=1, count=3, settings=None):
    """Run a scenario with a cluster."""

    async def workload(world):
        cluster = ReplicaCluster(world, count, settings=settings)
        await scenario(cluster)

    World(seed=seed).run(workload)


def test_followers_copy_what_the_leader_acknowledges():
    """An acknowledged record is on the disk of each replica in sync."""

    async def scenario(cluster):
        await cluster.start(partitions=2)
        for number in range(20):
            await cluster.produce(number % 2, b"value %d" % number)
        assert all(len(cluster.partition(index).isr) == 3 for index in (0, 1))
        for node_id in cluster.hosts:
            assert cluster.partition_on(node_id, 0).state.flushed_offset == 10
        await cluster.until(cluster.in_sync)

    run(scenario)
