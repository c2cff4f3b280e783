"""Leaders in metadata, and those that responses of Produce and Fetch name (KIP-951)."""

from uuid import UUID

from busway.cluster.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from busway_protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from busway_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

HERE = ("a", 1)
ELSEWHERE = NodeEndpoint(node_id=2, host="b", port=2)


def known() -> ClusterMetadata:
    """Broker 1 leads t-0 in epoch 4."""
    partition = PartitionInfo(0, 1, 4, (1, 2), (1, 2))
    return ClusterMetadata({1: HERE}, {"t": TopicInfo("t", UUID(int=7), internal=False, partitions=(partition,))})


def test_a_newer_leader_is_taken_with_its_address() -> None:
    """A second hint of the same epoch is no news."""
    metadata = known()
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    assert metadata.move_leader("t", 0, hint, [ELSEWHERE])
    assert (metadata.leader("t", 0), metadata.brokers[2]) == (2, ("b", 2))
    assert metadata.topics["t"].partitions[0].leader_epoch == 5
    assert not metadata.move_leader("t", 0, hint, [ELSEWHERE])


def test_other_hints_are_ignored() -> None:
    """Of an older epoch, without a leader, without an address, of an unknown partition."""
    metadata = known()
    for partition, leader, epoch in ((0, 2, 4), (0, -1, -1), (0, 3, 5), (1, 2, 5)):
        hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        assert not metadata.move_leader("t", partition, hint, [ELSEWHERE])
    assert not metadata.move_leader("u", 0, LeaderIdAndEpoch(leader_id=2, leader_epoch=5), [ELSEWHERE])
    assert metadata.leader("t", 0) == 1


def described(leader: int, epoch: int, topic_id: int = 7) -> MetadataResponse:
    """Metadata of t-0."""
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1, 2]
    )
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=UUID(int=topic_id), partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_metadata_of_a_broker_that_is_behind_moves_no_leader_back() -> None:
    """A newer epoch counts, a missing one too, and that of a topic that was created again."""
    metadata = known()
    for leader, epoch, topic_id, expected in ((2, 5, 7, 2), (1, 4, 7, 2), (1, -1, 7, 1), (2, 5, 7, 2), (1, 0, 8, 1)):
        metadata.update(described(leader, epoch, topic_id), all_topics=False)
        assert metadata.leader("t", 0) == expected
    metadata.update(described(2, 6, 8), all_topics=True)
    metadata.update(described(1, 5, 8), all_topics=True)
    assert metadata.leader("t", 0) == 2


def test_without_topic_ids_no_leader_epoch_is_known() -> None:
    """A topic that was created again would keep the epoch of the one before, which its broker refuses for ever."""
    metadata = ClusterMetadata()
    for leader, epoch in ((2, 5), (1, 0)):
        metadata.update(described(leader, epoch, 0), all_topics=False)
        assert (metadata.leader("t", 0), metadata.leader_epoch("t", 0)) == (leader, -1)
