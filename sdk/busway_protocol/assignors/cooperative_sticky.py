"""The cooperative sticky assignor: members keep reading what they keep while the rest moves in two rebalances (KIP-429).

What lives here: the rule of the first of the two: a partition that would change hands is given to nobody until its owner, seeing
that it lost it, has joined again without it. What does not: the target itself (`sticky`), revoking (the consumer).
"""

from collections.abc import Mapping

from busway_protocol.assignors import sticky
from busway_protocol.assignors.subscription import Assignment, Subscription

NAME = "cooperative-sticky"


def assign(partitions_by_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Member id → partitions; what someone else still owns is in no list."""
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
        member: [one for one in partitions if one not in latest or latest[one][1] <= {member}]
        for member, partitions in target.items()
    }
