"""When a produce is answered: with the last of its partitions, whatever becomes of them or of the client meanwhile."""

import asyncio

import pytest
from tests.integration.broker.test_response_before_durable import Gate, batch, held
from tests.support.raw_client import RawClient, frame

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.offsets import ListOffsetsRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

VERSION = 9


def produce(acks: int, *partitions: int) -> ProduceRequest:
    """A batch for each of these partitions of topic t."""
    data = [PartitionProduceData(index=number, records=batch(0)) for number in partitions]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


async def create(client: RawClient) -> None:
    """Topic t of two partitions."""
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def reached(gate: Gate, other: RawClient) -> None:
    """Return when the sync is held, and the loop has been through all that was sent before."""
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    for _ in range(3):
        await other.ask(ListOffsetsRequest(replica_id=-1, topics=[]), 5)


@pytest.mark.parametrize("acks", [-1, 1], ids=["acks=all", "acks=1"])
async def test_a_request_is_answered_with_the_last_of_its_partitions(cluster: LocalCluster, acks: int) -> None:
    """One of two is on disk: no answer; the other is, too: one answer for both."""
    assert cluster.node is not None
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client)
        fast, slow = (cluster.node.services.replicas.find("t", number) for number in (0, 1))
        with held(slow) as gate:
            asked = asyncio.create_task(client.ask(produce(acks, 0, 1), VERSION))
            await reached(gate, other)
            while fast.high_watermark == 0:
                await asyncio.sleep(0)
            assert not asked.done()
            assert (len(fast.acknowledgements), len(slow.acknowledgements)) == (0, 1)
        (topic,) = (await asked).responses
        assert [(answer.error_code, answer.base_offset) for answer in topic.partition_responses] == [(0, 0), (0, 0)]


async def test_records_of_a_topic_that_is_deleted_meanwhile_are_answered(cluster: LocalCluster) -> None:
    """No caller waits for ever for a partition that is gone."""
    assert cluster.node is not None
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client)
        partition = cluster.node.services.replicas.find("t", 0)
        with held(partition) as gate:
            asked = asyncio.create_task(client.ask(produce(-1, 0), VERSION))
            await reached(gate, other)
            await other.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
            assert not asked.done()
        assert (await asked).responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert len(partition.acknowledgements) == 0


async def test_a_client_that_leaves_takes_nothing_back_and_leaves_nothing(cluster: LocalCluster) -> None:
    """Its records are there, and its connection is forgotten as soon as no client waits for their acknowledgement."""
    assert cluster.node is not None
    async with RawClient(cluster.bootstrap_servers) as other:
        await create(other)
        partition = cluster.node.services.replicas.find("t", 0)
        connections = cluster.node._listeners._connections
        with held(partition) as gate:
            async with RawClient(cluster.bootstrap_servers) as client:
                client.send(frame(produce(-1, 0), VERSION) * 3)
                await reached(gate, other)
            await reached(gate, other)
            assert len(connections) == 2, "it is busy for a client that is gone"
        while len(connections) > 1 or partition.high_watermark == 0:
            await asyncio.sleep(0)
        assert (partition.log.end_offset, partition.high_watermark, len(partition.acknowledgements)) == (1, 1, 0)
