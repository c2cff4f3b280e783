"""The range assignor: consecutive partitions of each topic for every member.

Here: the results of Java's `RangeAssignor` for members without racks.
Not here: rack awareness (KIP-881).
"""

from collections.abc import Mapping

from busway_protocol.assignors.subscription import Assignment, Subscription, member_order

NAME = "range"


def assign(partitions_by_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Return member id → partitions, without topics that do not exist."""
    assignment: Assignment = {member: [] for member in subscriptions}
    members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
    for topic in sorted({topic for subscription in subscriptions.values() for topic in subscription.topics}):
        partitions = partitions_by_topic.get(topic, 0)
        readers = [member for member in members if topic in subscriptions[member].topics]
        share, extra = divmod(partitions, len(readers))
        first = 0
        for place, member in enumerate(readers):
            size = share + (1 if place < extra else 0)
            assignment[member] += [(topic, number) for number in range(first, first + size)]
            first += size
    return assignment
