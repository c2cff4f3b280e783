"""AssignReplicasToDirs: where a broker's replicas are, and that one without its directory does not lead."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.directories import AssignReplicasToDirs
from busway_protocol.errors import ErrorCode, KafkaError

SECOND = UUID(int=201)
UNKNOWN = UUID(int=999)


def cluster_with_two_directories() -> SmallCluster:
    """Broker 1 has a second directory; t is on 1 and 2, u on 2 and 3."""
    cluster = SmallCluster()
    cluster.create("t", (1, 2), (1, 2))
    cluster.create("u", (2, 3))
    brokers = cluster.image.brokers
    registered = replace(brokers[1], directories=(*brokers[1].directories, SECOND))
    cluster.image = replace(cluster.image, brokers=brokers.updated({1: registered}))
    return cluster


def assign(cluster: SmallCluster, *assignments: tuple[UUID, UUID, int], epoch: int | None = None) -> list[ErrorCode]:
    """By broker 1."""
    known = cluster.image.brokers[1].epoch
    command = AssignReplicasToDirs(broker_id=1, broker_epoch=known if epoch is None else epoch, assignments=assignments)
    return list(cluster.run(command))


def test_replicas_are_assigned_one_by_one() -> None:
    """Each has its own error; who leads stays."""
    cluster = cluster_with_two_directories()
    topics = cluster.image.topics
    t, u = topics["t"].topic_id, topics["u"].topic_id
    assert assign(cluster, (SECOND, t, 0), (SECOND, t, 7), (SECOND, u, 0), (SECOND, UNKNOWN, 0)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    partition = cluster.partition("t")
    assert (partition.directories, partition.leader, partition.leader_epoch) == ((SECOND, UUID(int=102)), 1, 0)
    before = cluster.image
    assert assign(cluster, (SECOND, t, 0)) == [ErrorCode.NONE]
    assert cluster.image.topics == before.topics


def test_a_replica_in_a_directory_that_is_offline_leads_no_more() -> None:
    """Another in sync does; it may lead again from a directory that is online."""
    cluster = cluster_with_two_directories()
    t = cluster.image.topics["t"].topic_id
    assert assign(cluster, (UNKNOWN, t, 0), (UNKNOWN, t, 0)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert cluster.partition("t", 1).leader == 1
    cluster.fence(2)
    assert cluster.partition("t").leader == -1
    assert assign(cluster, (UUID(int=101), t, 0)) == [ErrorCode.NONE]
    assert cluster.partition("t").leader == -1, "it is not in sync"


def test_a_broker_of_another_epoch_is_refused() -> None:
    """It registered again since."""
    with pytest.raises(KafkaError) as refused:
        assign(cluster_with_two_directories(), epoch=77)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
