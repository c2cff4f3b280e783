"""AlterPartition: a leader's new ISR, and every reason to refuse it, with Kafka's code."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.busway_bus.controller.cluster import SmallCluster

from busway_bus.controller.isr_changes import ANY_EPOCH, AlterPartition, IsrChange
from busway_bus.metadata.image import RECOVERED, RECOVERING, PartitionImage
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError


def cluster_with(isr: tuple[int, ...] = (1, 2, 3)) -> SmallCluster:
    """Topic t on brokers 1 to 3, led by 1."""
    cluster = SmallCluster(4)
    cluster.create("t", (1, 2, 3), min_insync_replicas="2")
    if isr != (1, 2, 3):
        assert isinstance(alter(cluster, isr), PartitionImage)
    return cluster


def request(
    cluster: SmallCluster, isr: tuple[int, ...], epochs: dict[int, int] | None = None, **fields: Any
) -> IsrChange:
    """A change as of the partition's present epochs."""
    partition, topic = cluster.partition("t"), cluster.image.topics["t"]
    values: dict[str, Any] = {
        "topic_id": topic.topic_id,
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": tuple((broker, (epochs or {}).get(broker, ANY_EPOCH)) for broker in isr),
        **fields,
    }
    return IsrChange(**values)


def alter(
    cluster: SmallCluster, isr: tuple[int, ...], epochs: dict[int, int] | None = None, *, by: int = 1, **fields: Any
) -> PartitionImage | KafkaError:
    """One change by a broker."""
    command = AlterPartition(
        broker_id=by, broker_epoch=cluster.image.brokers[by].epoch, changes=(request(cluster, isr, epochs, **fields),)
    )
    (reply,) = cluster.run(command)
    assert isinstance(reply, PartitionImage | KafkaError)
    return reply


def code(reply: PartitionImage | KafkaError) -> ErrorCode:
    """The error of a refusal."""
    assert isinstance(reply, KafkaError), reply
    return reply.code


def test_an_isr_shrinks_and_grows() -> None:
    """The reply is the partition as it is then; the leader keeps its epoch."""
    cluster = cluster_with()
    for epoch, isr in enumerate([(1, 2), (1, 2, 3), (1,), (1, 3)], 1):
        reply = alter(cluster, isr)
        assert reply == cluster.partition("t")
        assert isinstance(reply, PartitionImage)
        assert (reply.isr, reply.leader, reply.leader_epoch, reply.partition_epoch) == (isr, 1, 0, epoch)
    unchanged = alter(cluster, (1, 3))
    assert isinstance(unchanged, PartitionImage)
    assert unchanged.partition_epoch == 4


def test_replicas_that_leave_an_isr_below_its_minimum_stay_eligible() -> None:
    """2 led nothing and has everything committed: it leads when 1 is gone."""
    cluster = cluster_with((1,))
    assert cluster.partition("t").elr == (2, 3)
    cluster.fence(1)
    assert cluster.partition("t").leader == 2


@pytest.mark.parametrize(
    ("isr", "fields", "refusal"),
    [
        ((1, 2), {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 2), {"by": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"by": 2, "partition_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1,), {"recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1,), {"recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"epochs": {2: 1}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(isr: tuple[int, ...], fields: dict[str, Any], refusal: ErrorCode) -> None:
    """Nothing changes."""
    cluster = cluster_with()
    topic_id = cluster.image.topics["t"].topic_id
    cluster.apply([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1)])
    before = cluster.image
    assert code(alter(cluster, isr, **fields)) is refusal
    assert cluster.image.topics == before.topics


def test_a_topic_that_is_not_there_is_unknown() -> None:
    """By its id."""
    cluster = cluster_with()
    topic_id = cluster.image.brokers[1].incarnation
    assert code(alter(cluster, (1,), topic_id=topic_id)) is ErrorCode.UNKNOWN_TOPIC_ID


def test_only_active_brokers_enter_an_isr() -> None:
    """With the epoch that the leader saw in their fetches: a broker that restarted may lack what its log had."""
    cluster = cluster_with((1, 2))
    epoch = cluster.image.brokers[3].epoch
    assert code(alter(cluster, (1, 2, 3), {3: epoch - 1})) is ErrorCode.INELIGIBLE_REPLICA
    brokers = cluster.image.brokers
    for gone in (replace(brokers[3], fenced=True), replace(brokers[3], in_controlled_shutdown=True)):
        cluster.image = replace(cluster.image, brokers=brokers.updated({3: gone}))
        assert code(alter(cluster, (1, 2, 3), {3: epoch})) is ErrorCode.INELIGIBLE_REPLICA
        cluster.image = replace(cluster.image, brokers=brokers)
    cluster.image = replace(cluster.image, brokers=brokers.updated({3: None}))
    assert code(alter(cluster, (1, 2, 3))) is ErrorCode.INELIGIBLE_REPLICA
    cluster.image = replace(cluster.image, brokers=brokers)
    assert isinstance(alter(cluster, (1, 2, 3), {3: epoch}), PartitionImage)


def test_a_broker_of_another_epoch_is_refused_as_a_whole() -> None:
    """It registered again since, or not at all."""
    cluster = cluster_with()
    for broker, epoch in ((1, cluster.image.brokers[1].epoch - 1), (9, 1)):
        with pytest.raises(KafkaError) as refused:
            cluster.run(AlterPartition(broker_id=broker, broker_epoch=epoch, changes=(request(cluster, (1,)),)))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_two_changes_of_one_partition_do_not_overlap() -> None:
    """The second was asked for as of the same epoch."""
    cluster = cluster_with()
    command = AlterPartition(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        changes=(request(cluster, (1, 2)), request(cluster, (1, 3))),
    )
    made, refused = cluster.run(command)
    assert made == cluster.partition("t")
    assert code(refused) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_recovered_leader_says_so_and_has_others_in_sync() -> None:
    """After an unclean election it is alone until then."""
    cluster = cluster_with()
    topic_id = cluster.image.topics["t"].topic_id
    unclean = PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, leader=1, isr=[1], leader_recovery_state=RECOVERING
    )
    cluster.apply([unclean])
    assert code(alter(cluster, (1, 2), recovery_state=RECOVERING)) is ErrorCode.INVALID_REQUEST
    recovered = alter(cluster, (1, 2), recovery_state=RECOVERED)
    assert isinstance(recovered, PartitionImage)
    assert (recovered.recovery_state, recovered.isr) == (RECOVERED, (1, 2))


def test_an_isr_that_ends_a_reassignment_may_end_the_leadership() -> None:
    """The change is made, and the leader has to fetch the metadata."""
    cluster = cluster_with()
    topic_id = cluster.image.topics["t"].topic_id
    moving = PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=[4, 2, 3, 1],
        adding_replicas=[4],
        removing_replicas=[1],
        directories=[UUID(int=100 + broker) for broker in (4, 2, 3, 1)],
    )
    cluster.apply([moving])
    assert code(alter(cluster, (1, 2, 3, 4))) is ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.leader, partition.replicas, partition.isr) == (4, (4, 2, 3), (2, 3, 4))
    assert (partition.adding, partition.removing) == ((), ())
