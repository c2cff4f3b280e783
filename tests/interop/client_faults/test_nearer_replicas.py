"""Three nodes of Apache Kafka in racks: our consumer fetches from the replica in its rack (KIP-392)."""

import asyncio

import pytest

from busway import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.interop.client_faults.systems import Nodes
from tests.support.patience import patient
from tests.support.waiting import until

P = TopicPartition("t", 0)
BY_RACK = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.mark.java
@pytest.mark.timeout(600)
async def test_a_consumer_reads_from_its_rack_in_apache_kafka() -> None:
    """Each record once and in order, while the follower is killed."""
    async with Nodes("apache", 3, BY_RACK) as nodes, asyncio.timeout(patient(120)):
        async with Admin(nodes.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 3)])
        async with (
            Producer(nodes.bootstrap_servers) as producer,
            Consumer(bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest", client_rack="1") as first,
            Consumer(
                bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest", client_rack="2"
            ) as second,
        ):
            for consumer in (first, second):
                await consumer.assign([P])

            async def pass_on(value: int) -> None:
                await producer.send_and_wait("t", b"%d" % value, partition=0)
                for consumer in (first, second):
                    record = await consumer.getone()
                    assert (record.value, record.offset) == (b"%d" % value, value)

            for value in range(5):
                await pass_on(value)
            replicas = {consumer: consumer._fetcher.assigned[P].replica for consumer in (first, second)}
            near = {1, 2} & {replica for replica in replicas.values() if replica is not None}
            assert near  # the leader is in one of the racks at most
            follower = near.pop()
            await nodes.kill(follower)
            for value in range(5, 8):
                await pass_on(value)
            await until(lambda: all(consumer._fetcher.assigned[P].replica != follower for consumer in replicas))
