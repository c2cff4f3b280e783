"""Leaders and ISRs of three real nodes: elections by request, changes at the controller, and a restart of all."""

import asyncio
from typing import Any

import pytest
from tests.integration.test_three_nodes import asked, created, creation
from tests.support.patience import patient_ms
from tests.support.waiting import until

from busway import Consumer, Producer
from busway.net.connection import Connection
from busway_bus.metadata.image import PartitionImage
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata import DescribeTopicPartitionsRequest, TopicRequest
from busway_protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectory,
    AssignReplicasToDirsRequestPartition,
    AssignReplicasToDirsRequestTopic,
    BrokerState,
    ElectLeadersRequest,
    TopicPartitions,
)

pytestmark = pytest.mark.slow


def partition(nodes: LocalNodes, node_id: int | None = None) -> PartitionImage:
    """Partition t-0 as a node knows it."""
    node = nodes.nodes[node_id or next(iter(nodes.nodes))]
    image = node.services.image.partition("t", 0)
    assert image is not None
    return image


async def make_topic(nodes: LocalNodes) -> None:
    """Topic t with one partition, in sync on all nodes and known to them."""
    assert await created(nodes, 1, creation("t", partitions=1)) == ErrorCode.NONE
    await until(lambda: all("t" in node.services.image.topics for node in nodes.nodes.values()))
    await until(lambda: all(len(partition(nodes, node_id).isr) == 3 for node_id in nodes.nodes))


def active(nodes: LocalNodes) -> int:
    """The node whose controller decides."""
    return next(iter(nodes.nodes.values())).services.controller.leader_id


async def at_controller(nodes: LocalNodes, request: Any) -> Any:
    """Send a request of a broker to the active controller."""
    endpoint, *_ = nodes.nodes[active(nodes)].config.controller_listeners
    connection = Connection(endpoint.host, endpoint.port, client_id="test", timeout_s=patient_ms(10_000) / 1000)
    await connection.connect()
    try:
        return await connection.request(request)
    finally:
        connection.close()


async def test_a_preferred_leader_is_elected_at_any_node() -> None:
    """After it was away; with it no election is needed, and one that is down is not available."""
    async with LocalNodes() as nodes:
        await make_topic(nodes)
        first = partition(nodes).leader
        await nodes.shut_down(first)
        await until(lambda: partition(nodes).leader not in {first, -1})
        election = ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])

        async def elect(node_id: int) -> int:
            answer: Any = await asked(nodes, node_id, election)
            (row,) = answer.replica_election_results[0].partition_result
            return int(row.error_code)

        assert await elect(next(iter(nodes.nodes))) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await nodes.restart(first)
        await until(lambda: len(partition(nodes).isr) == 3)
        assert partition(nodes).leader != first
        assert await elect(first) == ErrorCode.NONE
        await until(lambda: all(partition(nodes, node_id).leader == first for node_id in nodes.nodes))
        for node_id in nodes.nodes:
            assert await elect(node_id) == ErrorCode.ELECTION_NOT_NEEDED


async def test_an_isr_is_changed_by_its_leader_alone() -> None:
    """With its newest epochs; a broker that restarted since is another one."""
    async with LocalNodes() as nodes:
        await make_topic(nodes)
        image = nodes.nodes[active(nodes)].services.image
        topic_id, now = image.topics["t"].topic_id, partition(nodes, active(nodes))

        async def alter(*, by: int = now.leader, partition_epoch: int = now.partition_epoch, epoch: int = 0) -> Any:
            wanted = AlterPartitionRequestPartition(
                partition_index=0,
                leader_epoch=now.leader_epoch,
                partition_epoch=partition_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=replica, broker_epoch=image.brokers[replica].epoch) for replica in now.isr
                ],
            )
            return await at_controller(
                nodes,
                AlterPartitionRequest(
                    broker_id=by,
                    broker_epoch=image.brokers[by].epoch + epoch,
                    topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=[wanted])],
                ),
            )

        async def code(**fields: int) -> int:
            answer = await alter(**fields)
            return int(answer.topics[0].partitions[0].error_code)

        same = (await alter()).topics[0].partitions[0]
        assert (same.error_code, same.leader_id, tuple(same.isr)) == (ErrorCode.NONE, now.leader, now.isr)
        assert await code(partition_epoch=now.partition_epoch + 1) == ErrorCode.NOT_CONTROLLER
        assert await code(by=now.isr[1] if now.isr[0] == now.leader else now.isr[0]) == ErrorCode.INVALID_REQUEST
        assert (await alter(epoch=-1)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_replica_in_an_unknown_directory_leads_no_more_until_its_broker_corrects_it() -> None:
    """The broker sees in the metadata that its directory is another."""
    async with LocalNodes() as nodes:
        await make_topic(nodes)
        image, now = nodes.nodes[active(nodes)].services.image, partition(nodes, active(nodes))
        topic_id, leader = image.topics["t"].topic_id, now.leader
        here = now.directory_on(leader)
        elsewhere = AssignReplicasToDirsRequestDirectory(
            id=topic_id,
            topics=[
                AssignReplicasToDirsRequestTopic(
                    topic_id=topic_id, partitions=[AssignReplicasToDirsRequestPartition(partition_index=0)]
                )
            ],
        )
        answer = await at_controller(
            nodes,
            AssignReplicasToDirsRequest(
                broker_id=leader, broker_epoch=image.brokers[leader].epoch, directories=[elsewhere]
            ),
        )
        assert answer.error_code == ErrorCode.NONE
        await until(lambda: partition(nodes, active(nodes)).leader not in {leader, -1})
        await until(lambda: partition(nodes, active(nodes)).directory_on(leader) == here)
        await until(lambda: len(partition(nodes, active(nodes)).isr) == 3)


async def test_a_cluster_that_was_killed_as_a_whole_has_everything_acknowledged() -> None:
    """Each partition has a leader again, of those that had all of it."""
    async with LocalNodes() as nodes:
        await make_topic(nodes)
        async with Producer(nodes.bootstrap_servers) as producer:
            for number in range(50):
                await producer.send_and_wait("t", str(number).encode())
        everyone = tuple(nodes.nodes)
        for node_id in everyone:
            await nodes.kill(node_id)
        await asyncio.gather(*(nodes.restart(node_id) for node_id in everyone))
        await until(lambda: partition(nodes).leader != -1)
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = [(await consumer.getone()).value for _ in range(50)]
        assert values == [str(number).encode() for number in range(50)]
        await until(lambda: len(partition(nodes, everyone[0]).isr) == 3)
        described: Any = await asked(
            nodes, everyone[0], DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        )
        (row,) = described.topics[0].partitions
        assert (sorted(row.isr_nodes), row.eligible_leader_replicas, row.last_known_elr) == ([1, 2, 3], [], [])
