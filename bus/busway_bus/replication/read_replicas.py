"""The replica that a consumer should read from (KIP-392).

Here: the choice by rack, as Kafka's `RackAwareReplicaSelector`.
Not here: whether it is wanted (`replica.selector.class`), reading.
"""

from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.partition_state import PartitionState

NONE_PREFERRED = -1


def preferred_replica(
    state: PartitionState, image: ClusterImage, *, listener: str, rack: str, fetch_offset: int
) -> int:
    """Return an in-sync follower in the consumer's rack that has the offset; -1 to read from the leader, which asks.

    The one with the largest end is chosen, then the one that was caught up last, then the smallest id.
    """
    leader = image.brokers.get(state.node_id)
    if not rack or (leader is not None and leader.rack == rack):
        return NONE_PREFERRED
    candidates = []
    for replica, follower in state.followers.items():
        if replica in state.isr and follower.log_start_offset <= fetch_offset <= follower.log_end_offset:
            broker = image.brokers.get(replica)
            if broker is not None and broker.rack == rack and image.address(replica, listener) is not None:
                candidates.append((-follower.log_end_offset, -follower.caught_up_ms, replica))
    return min(candidates)[2] if candidates else NONE_PREFERRED
