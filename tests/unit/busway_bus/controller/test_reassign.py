"""Reassignments: new replicas join, and once they are in sync the old ones leave; refusals in Kafka's words."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.isr_changes import ANY_EPOCH, AlterPartition, IsrChange
from busway_bus.controller.reassign import AlterPartitionReassignments, Move
from busway_bus.metadata.partition_places import MOVING, partitions_at
from busway_protocol.errors import ErrorCode, KafkaError


def move(cluster: SmallCluster, replicas: tuple[int, ...] | None, **fields: Any) -> KafkaError | None:
    """Move t-0."""
    command = AlterPartitionReassignments(moves=(Move(topic="t", partition=0, replicas=replicas),), **fields)
    (problem,) = cluster.run(command)
    assert problem is None or isinstance(problem, KafkaError)
    return problem


def in_sync(cluster: SmallCluster, *isr: int) -> None:
    """The leader reports this ISR."""
    partition = cluster.partition("t")
    change = IsrChange(
        topic_id=cluster.image.topics["t"].topic_id,
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((broker, ANY_EPOCH) for broker in isr),
    )
    epoch = cluster.image.brokers[partition.leader].epoch
    cluster.run(AlterPartition(broker_id=partition.leader, broker_epoch=epoch, changes=(change,)))


def placed(cluster: SmallCluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """Replicas, those that join, those that leave, and the leader."""
    partition = cluster.partition("t")
    return partition.replicas, partition.adding, partition.removing, partition.leader


def cluster_of(*replicas: int) -> SmallCluster:
    """Four brokers, and t-0 on some of them."""
    cluster = SmallCluster(4)
    cluster.create("t", replicas)
    return cluster


def test_a_move_ends_when_its_replicas_are_in_sync() -> None:
    """The old leader leads until then; each replica is in its broker's directory."""
    cluster = cluster_of(1, 2)
    assert move(cluster, (3, 4)) is None
    assert placed(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2), 1)
    assert [(topic, index) for topic, index, _ in partitions_at(cluster.image, MOVING)] == [("t", 0)]
    in_sync(cluster, 1, 2, 3)
    assert placed(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2), 1)
    in_sync(cluster, 1, 2, 3, 4)
    assert placed(cluster) == ((3, 4), (), (), 3)
    assert cluster.partition("t").isr == (3, 4)
    assert cluster.partition("t").directories == (UUID(int=103), UUID(int=104))
    assert list(partitions_at(cluster.image, MOVING)) == []


def test_a_move_to_the_same_brokers_is_done_at_once() -> None:
    """Another order makes another preferred replica; fewer replicas leave at once, as the others are in sync."""
    cluster = cluster_of(1, 2, 3)
    assert move(cluster, (2, 1, 3)) is None
    assert placed(cluster) == ((2, 1, 3), (), (), 1)
    assert move(cluster, (2, 3)) is None
    assert placed(cluster) == ((2, 3), (), (), 2)
    before = cluster.partition("t")
    assert move(cluster, (2, 3)) is None
    assert cluster.partition("t") == before


def test_a_move_is_cancelled() -> None:
    """With an old replica in sync; else only where an unclean election is allowed."""
    cluster = cluster_of(1, 2)
    problem = move(cluster, None)
    assert problem is not None
    assert problem.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(cluster, (3, 2)) is None
    in_sync(cluster, 1, 2)
    assert move(cluster, None) is None
    assert placed(cluster) == ((2, 1), (), (), 1)
    assert move(cluster, (3, 4)) is None
    in_sync(cluster, 1, 3)
    cluster.fence(2)
    cluster.fence(1)
    assert placed(cluster)[3] == 3
    problem = move(cluster, None)
    assert problem is not None
    assert problem.message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
    )
    cluster.configure("t", "unclean.leader.election.enable", "true")
    cluster.unfence(2)
    assert move(cluster, None) is None
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.adding) == (2, (2,), ())


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        ((), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 3), {"may_change_factor": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refused_moves(replicas: tuple[int, ...], fields: dict[str, Any], code: ErrorCode) -> None:
    """Nothing moves."""
    cluster = cluster_of(1, 2)
    problem = move(cluster, replicas, **fields)
    assert problem is not None
    assert problem.code is code
    assert placed(cluster) == ((1, 2), (), (), 1)


def test_the_factor_is_that_after_a_move_in_progress() -> None:
    """Replicas that leave do not count."""
    cluster = cluster_of(1, 2)
    assert move(cluster, (3, 4)) is None
    assert move(cluster, (3, 1), may_change_factor=False) is None
    problem = move(cluster, (3, 1, 2), may_change_factor=False)
    assert problem is not None
    assert problem.message == "The replication factor is changed from 2 to 3"
