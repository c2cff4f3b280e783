"""A consumer in a rack fetches from the replica there (KIP-392), and from the leader when that is away."""

import asyncio
import dataclasses

import pytest
from tests.support.patience import patient
from tests.support.waiting import until

from busway import Admin, Consumer, NewTopic, Producer, TopicPartition
from busway_bus.testing.local_nodes import LocalNodes

pytestmark = pytest.mark.slow
P = TopicPartition("t", 0)
BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def in_racks() -> LocalNodes:
    """Three nodes, each in the rack of its id."""
    nodes = LocalNodes(properties={"replica.selector.class": BY_RACK})
    for node_id, config in nodes._configs.items():
        nodes._configs[node_id] = dataclasses.replace(
            config, properties={**config.properties, "broker.rack": str(node_id)}
        )
    return nodes


def fetches(nodes: LocalNodes, node_id: int) -> int:
    """Of consumers, at a node that follows."""
    partition = nodes.nodes[node_id].services.replicas.find(*P)
    return 0 if partition is None else partition.counters.fetch_requests


@pytest.mark.parametrize("metadata_max_age_ms", [300_000, pytest.param(1, marks=pytest.mark.hostile)])
async def test_a_consumer_reads_from_its_rack(metadata_max_age_ms: int) -> None:
    """Each record once and in order, while the follower dies and comes back; also if the leader is asked each time."""
    async with in_racks() as nodes, asyncio.timeout(patient(60)):
        async with Admin(nodes.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 3)])

        def image() -> tuple[int, tuple[int, ...]]:
            partition = next(iter(nodes.nodes.values())).services.image.partition("t", 0)
            return (-1, ()) if partition is None else (partition.leader, partition.isr)

        await until(lambda: len(image()[1]) == 3)
        follower = next(node_id for node_id in nodes.nodes if node_id != image()[0])
        async with (
            Producer(nodes.bootstrap_servers) as producer,
            Consumer(
                bootstrap_servers=nodes.bootstrap_servers,
                auto_offset_reset="earliest",
                client_rack=str(follower),
                metadata_max_age_ms=metadata_max_age_ms,
            ) as consumer,
        ):
            await consumer.assign([P])

            async def pass_on(value: int) -> None:
                await producer.send_and_wait("t", b"%d" % value, partition=0)
                record = await consumer.getone()
                assert (record.value, record.offset) == (b"%d" % value, value)

            for value in range(5):
                await pass_on(value)
            assert fetches(nodes, follower) > 0
            if metadata_max_age_ms > 1:
                assert consumer._fetcher.assigned[P].replica == follower
            await nodes.kill(follower)
            for value in range(5, 8):
                await pass_on(value)
            assert consumer._fetcher.assigned[P].replica is None
