"""A partition moves between three real nodes while it is written."""

import functools
from typing import Any

import pytest
from tests.integration.test_three_nodes import asked
from tests.support.waiting import until

from busway import Consumer, Producer
from busway_bus.metadata.image import PartitionImage
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from busway_protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.slow


def partition(nodes: LocalNodes, node_id: int) -> PartitionImage:
    """Partition t-0 as a node knows it."""
    image = nodes.nodes[node_id].services.image.partition("t", 0)
    assert image is not None
    return image


async def move(nodes: LocalNodes, at: int, *replicas: int) -> int:
    """Request a move at one node; return its error code."""
    wanted = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=list(replicas))])
    answer: Any = await asked(nodes, at, AlterPartitionReassignmentsRequest(topics=[wanted]))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.responses[0].partitions[0].error_code)


async def test_a_partition_moves_with_its_records() -> None:
    """To other nodes, and back; its old replica is deleted, and nothing is lost."""
    async with LocalNodes(properties={"min.insync.replicas": "1"}) as nodes:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
        made: Any = await asked(nodes, 2, CreateTopicsRequest(topics=[topic]))
        assert made.topics[0].error_code == ErrorCode.NONE
        await until(lambda: all("t" in node.services.image.topics for node in nodes.nodes.values()))
        async with Producer(nodes.bootstrap_servers) as producer:
            for step, replicas in enumerate([(2,), (3, 1), (1, 2, 3), (3,)]):
                for number in range(step * 20, step * 20 + 20):
                    await producer.send_and_wait("t", str(number).encode())
                assert await move(nodes, 1 + step % 3, *replicas) == ErrorCode.NONE
                await until(functools.partial(has_moved, nodes, replicas))
        async with Consumer("t", bootstrap_servers=nodes.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = [(await consumer.getone()).value for _ in range(80)]
        assert values == [str(number).encode() for number in range(80)]
        await until(lambda: [node_id for node_id, node in nodes.nodes.items() if holds(node)] == [3])
        listed: Any = await asked(nodes, 2, ListPartitionReassignmentsRequest(topics=None))
        assert listed.topics == []


def has_moved(nodes: LocalNodes, replicas: tuple[int, ...]) -> bool:
    """Whether all nodes know that the move has ended."""
    placed = [partition(nodes, node_id) for node_id in nodes.nodes]
    return all(
        (image.replicas, image.adding, image.removing, set(image.isr)) == (replicas, (), (), set(replicas))
        for image in placed
    )


def holds(node: Any) -> bool:
    """Whether a node has a replica of t-0."""
    return node.services.replicas.local.get(("t", 0)) is not None


async def test_a_move_to_a_node_that_is_down_is_listed_and_cancelled() -> None:
    """Until then the old replicas serve."""
    async with LocalNodes(properties={"min.insync.replicas": "1"}) as nodes:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
        made: Any = await asked(nodes, 1, CreateTopicsRequest(topics=[topic]))
        assert made.topics[0].error_code == ErrorCode.NONE
        await nodes.stop(3)
        assert await move(nodes, 1, 3, 1) == ErrorCode.NONE
        await until(lambda: partition(nodes, 1).adding == (3,))
        listed: Any = await asked(nodes, 1, ListPartitionReassignmentsRequest(topics=None))
        (row,) = listed.topics[0].partitions
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([3, 1, 2], [3], [2])
        wanted = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=None)])
        answer: Any = await asked(nodes, 2, AlterPartitionReassignmentsRequest(topics=[wanted]))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        await until(lambda: partition(nodes, 1).replicas == (1, 2))
        assert partition(nodes, 1).adding == ()
