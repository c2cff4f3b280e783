"""Three brokers under crashes, power cuts, lost requests and slow disks, by seed.

Nothing that was acknowledged is lost; what was read below a high watermark never changes; at the end all replicas are in sync, with the same bytes.
"""

import asyncio
import os
from random import Random
from typing import Final

import pytest
from tests.unit.busway_bus.replication.replica_cluster import ReplicaCluster

from busway_bus.testing.world import Crashed, World
from busway_protocol.errors import KafkaError
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.record import decode_records

SEEDS: Final = range(int(os.environ.get("BUSWAY_SEEDS", "8")))
PARTITIONS: Final = 2
FAULTS: Final = 20


class History:
    """What clients have seen: acknowledged records, and records below a high watermark."""

    def __init__(self, cluster: ReplicaCluster, chance: Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.seen: dict[tuple[int, int], bytes] = {}
        self.attempts = 0
        self.over = False

    async def write(self, writer: int) -> None:
        """One producer, which does not repeat what failed."""
        while not self.over:
            self.attempts += 1
            index, value = self.attempts % PARTITIONS, b"%d/%d" % (writer, self.attempts)
            try:
                offset = await self.cluster.produce(index, value, within_s=self.chance.choice((0.5, 5.0)))
            except (KafkaError, Crashed):
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.append((index, offset, value))
            await asyncio.sleep(self.chance.expovariate(100))

    async def read(self) -> None:
        """A reader of any replica, up to its high watermark."""
        while not self.over:
            await asyncio.sleep(self.chance.expovariate(20))
            self.look(self.chance.choice(list(self.cluster.hosts)), self.chance.randrange(PARTITIONS))

    def look(self, node_id: int, index: int) -> None:
        """Note all records below a replica's high watermark; each offset has one value for ever."""
        partition = self.cluster.partition_on(node_id, index)
        if partition is None:
            return
        for content in partition.log.batches():
            for header, batch in iter_batches(content):
                if header.next_offset > partition.high_watermark:
                    return
                for record in decode_records(bytes(batch)):
                    before = self.seen.setdefault((index, record.offset), record.value or b"")
                    assert before == record.value, (
                        f"offset {record.offset} of {index} was {before!r}, now {record.value!r}"
                    )

    def check(self) -> None:
        """All acknowledged records are where they were acknowledged."""
        for node_id in self.cluster.hosts:
            for index in range(PARTITIONS):
                self.look(node_id, index)
        for index, offset, value in self.acknowledged:
            assert self.seen.get((index, offset)) == value, (
                f"{value!r} at {offset} of {index} was acknowledged, and is lost"
            )


async def disturb(cluster: ReplicaCluster, chance: Random) -> None:
    """Faults one after the other, of which several may last at a time."""
    for _ in range(FAULTS):
        await asyncio.sleep(chance.expovariate(2))
        node_id = chance.choice(list(cluster.hosts))
        host = cluster.hosts[node_id]
        fault = chance.choice(("kill", "power", "leader", "cut", "slow", "heal", "all"))
        if fault == "leader":
            node_id = cluster.partition(chance.randrange(PARTITIONS)).leader
            host = cluster.hosts.get(node_id, host)
        dead = [other for other, stopped in cluster.hosts.items() if not stopped.alive]
        if dead and chance.random() < 0.6:
            await cluster.restart(chance.choice(dead))
        elif fault in {"kill", "power", "leader"} and host.alive:
            node_id = host.node_id
            cluster.crash(node_id, power=fault == "kill")
            if chance.random() < 0.7:
                await asyncio.sleep(chance.expovariate(5))
                cluster.fence(node_id)
        elif fault == "all":
            for other, running in cluster.hosts.items():
                if running.alive:
                    cluster.crash(other, power=False)
        elif fault == "cut":
            other = chance.choice([other for other in cluster.hosts if other != node_id])
            cluster.cut |= {(node_id, other), (other, node_id)} if chance.random() < 0.7 else {(node_id, other)}
        elif fault == "slow":
            host.disk.faults.sync_s = chance.choice(((0.0, 0.0), (0.01, 0.05), (0.05, 0.3)))
        elif fault == "heal":
            cluster.cut.clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_and_logs_match(seed: int) -> None:
    """Faults, then none: the replicas converge within a bounded time."""

    async def workload(world: World) -> None:
        chance = world.chance("workload")
        cluster = ReplicaCluster(world, 3, settings={"replica.fetch.max.bytes": chance.choice(("100", "1048576"))})
        cluster.delay_s = chance.choice((0.001, 0.02))
        await cluster.start(PARTITIONS)
        for host in cluster.hosts.values():
            host.disk.faults.sync_s = chance.choice(((0.0, 0.0), (0.01, 0.05)))
        history = History(cluster, chance)
        running = [asyncio.ensure_future(history.write(writer)) for writer in range(3)]
        running.append(asyncio.ensure_future(history.read()))
        await disturb(cluster, chance)
        cluster.cut.clear()
        for node_id, host in cluster.hosts.items():
            host.disk.faults.sync_s = (0.0, 0.0)
            if not host.alive:
                await cluster.restart(node_id)
        await asyncio.sleep(1)
        history.over = True
        await asyncio.gather(*running)
        await cluster.until(cluster.in_sync, within_s=120)
        history.check()
        for index in range(PARTITIONS):
            logs = [
                list(replica.log.batches())
                for node_id in cluster.hosts
                if (replica := cluster.partition_on(node_id, index))
            ]
            assert logs[0] == logs[1] == logs[2]
        assert history.acknowledged, "no record was acknowledged at all"

    World(seed=seed).run(workload)
