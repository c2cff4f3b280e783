"""Leaders and ISRs when brokers come and go, and elections by request."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.configs import AlterConfigs
from busway_bus.controller.elections import PREFERRED, UNCLEAN, BalanceLeaders, ElectLeaders, ElectMissingLeaders
from busway_bus.controller.leaders import ReportReplicas, leads_any
from busway_bus.metadata.image import BROKER_RESOURCE, LOST, NO_LEADER, TOPIC_RESOURCE
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError


def state(cluster: SmallCluster, topic: str = "t", index: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR and ELR."""
    partition = cluster.partition(topic, index)
    return partition.leader, partition.isr, partition.elr


def test_a_fenced_broker_costs_its_own_partitions() -> None:
    """It leaves their ISRs, and those that it led have another leader; others have no record."""
    cluster = SmallCluster(4)
    cluster.create("t", (1, 2), (2, 1), (3, 4))
    assert cluster.fence(1) == 2
    assert [state(cluster, index=index) for index in range(3)] == [(2, (2,), ()), (2, (2,), ()), (3, (3, 4), ())]
    assert not leads_any(cluster.image, 1)
    assert leads_any(cluster.image, 2)
    assert cluster.fence(1) == 0


@pytest.mark.parametrize("elr", [True, False])
def test_brokers_leave_and_come_back_in_any_order(elr: bool) -> None:
    """With eligible replicas the second of two leads again, without them only the last one in sync."""
    cluster = SmallCluster(elr=elr)
    cluster.create("t", (1, 2, 3), min_insync_replicas="2")
    for broker in (1, 2, 3):
        cluster.fence(broker)
    assert state(cluster) == ((NO_LEADER, (), (2, 3)) if elr else (NO_LEADER, (3,), ()))
    cluster.unfence(1)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.unfence(2)
    assert state(cluster) == ((2, (2,), (3,)) if elr else (NO_LEADER, (3,), ()))
    cluster.unfence(3)
    assert state(cluster) == ((2, (2,), (3,)) if elr else (3, (3,), ()))


def test_an_unclean_shutdown_leaves_isr_and_elr() -> None:
    """A broker that may have lost records is not eligible; without eligible replicas it is only fenced."""
    cluster = SmallCluster()
    cluster.create("t", (1, 2, 3), min_insync_replicas="2")
    for broker in (1, 2):
        cluster.fence(broker)
    assert state(cluster) == (3, (3,), (2,))
    cluster.fence(2, unclean=True)
    assert state(cluster) == (3, (3,), ())
    cluster.fence(3, unclean=True)
    assert state(cluster) == (NO_LEADER, (), ())
    assert cluster.partition("t").last_known_elr == (3,)
    older = SmallCluster(elr=False)
    older.create("t", (1,))
    older.fence(1, unclean=True)
    assert state(older) == (NO_LEADER, (1,), ())


def test_the_minimum_is_at_most_the_replication_factor() -> None:
    """And a setting of the topic wins over that of the cluster."""
    cluster = SmallCluster(min_insync_replicas="3")
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2), min_insync_replicas="1")
    cluster.fence(1)
    assert state(cluster) == (2, (2,), (1,))
    assert state(cluster, "u") == (2, (2,), ())


def test_unclean_elections_are_explicit() -> None:
    """A topic without the setting waits for a replica in sync; the command elects where it is set later."""
    cluster = SmallCluster(elr=False)
    for name, allowed in (("t", "false"), ("u", "true")):
        cluster.create(name, (1, 2), unclean_leader_election_enable=allowed)
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    assert state(cluster) == (NO_LEADER, (1,), ())
    assert state(cluster, "u") == (2, (2,), ())
    assert cluster.partition("u").recovery_state == 1
    assert cluster.run(ElectMissingLeaders()) is False
    assert state(cluster) == (NO_LEADER, (1,), ())
    cluster.configure("t", "unclean.leader.election.enable", "true")
    assert cluster.run(ElectMissingLeaders(most=1)) is True
    assert state(cluster) == (2, (2,), ())


def codes(replies: Any) -> list[ErrorCode]:
    """The error of each result."""
    return [ErrorCode.NONE if problem is None else problem.code for _, problem in replies]


def test_leaders_are_elected_by_request() -> None:
    """The preferred ones, or any live one; each partition with its own result in Kafka's words."""
    cluster = SmallCluster(elr=False)
    cluster.create("t", (1, 2), (2, 3))
    cluster.create("u", (3,))
    cluster.fence(1)
    keys = (("t", 0), ("t", 1), ("t", 9), ("gone", 0))
    assert codes(cluster.run(ElectLeaders(kind=PREFERRED, partitions=keys))) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cluster.fence(3)
    assert state(cluster, "u") == (NO_LEADER, (3,), ())
    assert cluster.run(ElectLeaders(kind=UNCLEAN, partitions=None))[0][0] == ("u", 0)
    assert codes(cluster.run(ElectLeaders(kind=UNCLEAN, partitions=None))) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.unfence(3)
    cluster.unfence(1)
    assert state(cluster, "u") == (3, (3,), ())
    assert codes(cluster.run(ElectLeaders(kind=UNCLEAN, partitions=(("t", 0),)))) == [ErrorCode.ELECTION_NOT_NEEDED]
    ((_, refused),) = cluster.run(ElectLeaders(kind=7, partitions=(("t", 0),)))
    assert isinstance(refused, KafkaError)
    assert refused.message == "Unknown election type 7"


def test_an_unclean_election_by_request_leads_with_a_replica_behind() -> None:
    """Whatever the topic's setting says: who asks accepts the loss. Named twice, it is elected once."""
    cluster = SmallCluster()
    cluster.create("t", (1, 2))
    cluster.fence(2)
    cluster.fence(1, unclean=True)
    cluster.unfence(2)
    assert state(cluster) == (NO_LEADER, (), ())
    assert codes(cluster.run(ElectLeaders(kind=UNCLEAN, partitions=(("t", 0),) * 2))) == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert state(cluster) == (2, (2,), ())


def test_leaders_return_to_their_preferred_replicas() -> None:
    """As soon as these are in sync again, and as many at once as asked for."""
    cluster = SmallCluster()
    cluster.create("t", *((1, 2),) * 3)
    cluster.fence(1)
    cluster.unfence(1)
    assert cluster.run(BalanceLeaders()) is False
    assert [state(cluster, index=index)[0] for index in range(3)] == [2, 2, 2]
    topic_id = cluster.image.topics["t"].topic_id
    cluster.apply(PartitionChangeRecord(topic_id=topic_id, partition_id=index, isr=[2, 1]) for index in range(3))
    assert cluster.run(BalanceLeaders(most=2)) is True
    assert [state(cluster, index=index)[0] for index in range(3)] == [1, 1, 2]
    assert cluster.run(BalanceLeaders(most=2)) is False
    assert cluster.partition("t", 2).leader == 1
    assert cluster.run(ElectLeaders(kind=PREFERRED, partitions=None)) == ()


def test_a_log_that_fails_takes_its_replica_from_leadership() -> None:
    """And one that is back leads what has no leader; a directory that its broker does not have cannot lead."""
    cluster = SmallCluster(2)
    cluster.create("t", (1, 2), min_insync_replicas="2")
    lost = (("t", 0), ("gone", 0))
    cluster.run(ReportReplicas(node_id=1, lost=lost))
    assert state(cluster) == (2, (2,), (1,))
    assert cluster.partition("t").directories == (LOST, UUID(int=102))
    cluster.run(ReportReplicas(node_id=2, lost=lost))
    assert state(cluster) == (NO_LEADER, (), (1, 2))
    assert cluster.unfence(1) == 0
    cluster.run(ReportReplicas(node_id=1, restored=lost))
    assert state(cluster) == (1, (1,), (2,))
    assert cluster.partition("t").directories == (UUID(int=101), LOST)


def test_another_minimum_ends_eligibility() -> None:
    """What was committed with one replica in sync the eligible ones may lack; of one topic, or of all."""
    cluster = SmallCluster()
    for name in ("t", "u"):
        cluster.create(name, (1, 2, 3), min_insync_replicas="2")
    for broker in (1, 2):
        cluster.fence(broker)
    assert state(cluster) == state(cluster, "u") == (3, (3,), (2,))
    epoch = cluster.partition("t").partition_epoch
    change = AlterConfigs(kind=TOPIC_RESOURCE, updates=(("t", (("min.insync.replicas", 0, "1"),)),), incremental=True)
    assert cluster.run(change) == (None,)
    assert state(cluster) == (3, (3,), ())
    assert cluster.partition("t").partition_epoch == epoch + 1
    assert state(cluster, "u") == (3, (3,), (2,))
    everywhere = (("", (("min.insync.replicas", 0, "1"),)),)
    assert cluster.run(AlterConfigs(kind=BROKER_RESOURCE, updates=everywhere, incremental=True)) == (None,)
    assert state(cluster, "u") == (3, (3,), ())
