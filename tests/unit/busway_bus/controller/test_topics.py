"""Commands on topics: many in one decision, each on what those before it leave, on the brokers that there are."""

import itertools
from dataclasses import replace
from uuid import UUID

import pytest

from busway_bus.controller.brokers import RegisterBroker
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.leaders import ReportReplicas
from busway_bus.controller.placement import place
from busway_bus.controller.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionCount,
    check_count,
)
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import LOST, NO_LEADER, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError


class Cluster:
    """An image, and the decisions that change it."""

    def __init__(self, brokers: int = 1) -> None:
        self.image, self.numbers = ClusterImage(), itertools.count(1)
        for node_id in range(1, brokers + 1):
            self.run(
                RegisterBroker(
                    node_id=node_id,
                    incarnation=UUID(int=900 + node_id),
                    endpoints=(Endpoint(name="PLAINTEXT", host="h", port=9000 + node_id),),
                    rack=None,
                    directories=(UUID(int=100 + node_id),),
                    features=(),
                )
            )

    def run(self, command):
        """Decide, and take the records in."""
        offset = next(self.numbers)
        surroundings = Surroundings(
            config=BrokerConfig.defaults(), new_id=lambda: UUID(int=next(self.numbers)), next_offset=offset
        )
        decision = command.decide(self.image, surroundings)
        delta = Delta(self.image)
        for record in decision.records:
            delta.apply(record)
        self.image = delta.image()
        return decision.reply


def codes(replies):
    """The error of each, NONE where there is none."""
    return [reply.code if isinstance(reply, KafkaError) else ErrorCode.NONE for reply in replies]


def test_many_topics_are_one_decision_and_each_is_judged_on_those_before() -> None:
    """The second of two names that metrics cannot tell apart is refused, the others are made."""
    cluster = Cluster()
    names = ["a.b", "a_b", "c", "bad name", "d"]
    replies = cluster.run(CreateTopics(topics=tuple(NewTopic(name=name) for name in names)))
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(replies) == [ErrorCode.NONE, invalid, ErrorCode.NONE, invalid, ErrorCode.NONE]
    assert list(cluster.image.topics) == ["a.b", "c", "d"]
    ids = [cluster.image.topics["c"].topic_id, "d", UUID(int=77), "gone"]
    assert codes(cluster.run(DeleteTopics(topics=(*ids, "a.b")))) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert not cluster.image.topics
    assert codes(cluster.run(CreateTopics(topics=(NewTopic(name="a_b"),)))) == [ErrorCode.NONE]


def test_what_is_only_checked_changes_nothing() -> None:
    """The reply is that of the real one."""
    cluster = Cluster()
    (reply,) = cluster.run(CreateTopics(topics=(NewTopic(name="t", partitions=3),), validate_only=True))
    assert len(reply.partitions) == 3
    assert not cluster.image.topics


def test_too_many_partitions_are_refused_together() -> None:
    """Those by default count, too."""
    wanted = (NewTopic(name="a", partitions=9_999), NewTopic(name="b"))
    check_count(wanted, BrokerConfig.defaults())
    with pytest.raises(KafkaError) as refused:
        check_count((*wanted, NewTopic(name="c")), BrokerConfig.defaults())
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_replicas_lie_on_the_registered_brokers_by_turns() -> None:
    """And in the directory that each registered; a new partition has as many as the first."""
    cluster = Cluster(brokers=3)
    cluster.run(CreateTopics(topics=(NewTopic(name="t", partitions=3, replication_factor=2),)))
    partitions = cluster.image.topics["t"].partitions
    assert sorted(partition.leader for partition in partitions) == [1, 2, 3]
    for partition in partitions:
        assert len(set(partition.replicas)) == 2
        assert partition.isr == partition.replicas
        assert partition.directories == tuple(UUID(int=100 + replica) for replica in partition.replicas)
    cluster.run(CreatePartitions(topics=(PartitionCount(name="t", count=4),)))
    assert len(set(cluster.image.topics["t"].partitions[3].replicas)) == 2
    with pytest.raises(KafkaError, match="only 3 broker"):
        place(cluster.image, 1, 4, lambda: UUID(int=1))


def test_a_broker_that_shuts_down_gets_no_new_replica() -> None:
    """Nor does one whose directories are all cordoned; a fenced one is out of sync."""
    cluster = Cluster(brokers=4)
    cordoned, stopping, fenced = (cluster.image.brokers[node_id] for node_id in (1, 2, 3))
    brokers = {
        1: replace(cordoned, cordoned_directories=cordoned.directories),
        2: replace(stopping, in_controlled_shutdown=True),
        3: replace(fenced, fenced=True),
    }
    cluster.image = replace(cluster.image, brokers=cluster.image.brokers.updated(brokers))
    cluster.run(CreateTopics(topics=(NewTopic(name="t", partitions=2, replication_factor=2),)))
    assert [(partition.replicas, partition.isr) for partition in cluster.image.topics["t"].partitions] == [
        ((4, 3), (4,))
    ] * 2
    (reply,) = cluster.run(CreateTopics(topics=(NewTopic(name="u", replication_factor=3),)))
    assert "only 2 broker(s) are registered or some brokers have all their log directories cordoned" in str(reply)
    (reply,) = cluster.run(CreateTopics(topics=(NewTopic(name="u", assignments=((0, (2, 3)),)),)))
    assert "partition 0 are fenced or in controlled shutdown" in str(reply)


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        (((0, ()),), "an empty replica list"),
        (((0, (1, 1)),), "the broker 1 more than once"),
        (((0, (1, 7)),), "broker 7, but no such broker is registered"),
        (((0, (1, 2)), (1, (1,))), "not consistent with previous partitions, which have 2"),
        (((0, (1,)), (0, (2,))), "multiple manual partition assignments for partition 0"),
        (((1, (1,)),), "consecutive 0-based"),
    ],
)
def test_replicas_that_somebody_chose_are_checked(assignments, text) -> None:
    """In Kafka's words."""
    (reply,) = Cluster(brokers=2).run(CreateTopics(topics=(NewTopic(name="t", assignments=assignments),)))
    assert isinstance(reply, KafkaError)
    assert text in str(reply)


def test_replicas_that_somebody_chose_are_taken() -> None:
    """The first leads."""
    cluster = Cluster(brokers=2)
    cluster.run(CreateTopics(topics=(NewTopic(name="t", assignments=((1, (1, 2)), (0, (2, 1)))),)))
    assert [partition.leader for partition in cluster.image.topics["t"].partitions] == [2, 1]


def test_a_replica_that_cannot_be_served_leads_no_more() -> None:
    """Another in sync does; the last one in sync stays so, and leads again when it is back, each time in a new epoch."""
    cluster = Cluster(brokers=2)
    cluster.run(CreateTopics(topics=(NewTopic(name="t", partitions=1, replication_factor=2),)))
    seen = []
    for node_id, lost in ((1, True), (2, True), (2, False)):
        keys = (("t", 0), ("gone", 0))
        cluster.run(ReportReplicas(node_id=node_id, **{"lost" if lost else "restored": keys}))
        partition = cluster.image.partition("t", 0)
        assert partition is not None
        seen.append(
            (partition.leader, partition.isr, partition.leader_epoch, cluster.image.lacks(partition, "PLAINTEXT"))
        )
    assert seen == [(2, (2,), 1, [1]), (NO_LEADER, (2,), 2, [1, 2]), (2, (2,), 3, [1])]
    assert partition.directories == (LOST, UUID(int=102))
