"""The cooperative sticky assignor: partitions move in two rebalances, others are read meanwhile (KIP-429).

Here: the first rebalance, which assigns a moving partition to no member until its owner has revoked it and rejoined.
Not here: the target (`sticky`), revoking (the consumer).
"""

from collections.abc import Mapping

from busway_protocol.assignors import sticky
from busway_protocol.assignors.subscription import Assignment, Subscription

NAME = "cooperative-sticky"


def assign(partitions_by_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Return member id → partitions, without those that another member still owns."""
    target = sticky.assign(partitions_by_topic, subscriptions)
    latest: dict[tuple[str, int], tuple[int, set[str]]] = {}
    for member, subscription in subscriptions.items():
        for partition in subscription.owned_partitions:
            generation, holders = latest.get(partition, (subscription.generation_id, set()))
            if subscription.generation_id > generation:
                latest[partition] = (subscription.generation_id, {member})
            elif subscription.generation_id == generation:
                latest[partition] = (generation, holders | {member})
    return {
        member: [partition for partition in partitions if partition not in latest or latest[partition][1] <= {member}]
        for member, partitions in target.items()
    }
