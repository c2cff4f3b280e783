"""Leaders that responses of Produce and Fetch name (KIP-951)."""

from uuid import UUID

from busway.cluster.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from busway_protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint

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
