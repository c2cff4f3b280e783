"""The round robin assignor: all partitions of all topics in turn.

Here: the results of Java's `RoundRobinAssignor`.
Not here: stickiness (`sticky`).
"""

from collections.abc import Mapping

from busway_protocol.assignors.subscription import Assignment, Subscription, member_order

NAME = "roundrobin"


def assign(partitions_by_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Return member id → partitions, without topics that do not exist."""
    assignment: Assignment = {member: [] for member in subscriptions}
    members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
    place = 0
    for topic in sorted({topic for subscription in subscriptions.values() for topic in subscription.topics}):
        for number in range(partitions_by_topic.get(topic, 0)):
            while topic not in subscriptions[members[place % len(members)]].topics:
                place += 1
            assignment[members[place % len(members)]].append((topic, number))
            place += 1
    return assignment
