"""Partitions of a classic group that no member owns.

Not here: assigning (`membership_classic`).

A cooperative round withholds partitions from the new owner until the old one has revoked them and joined again
(KIP-429). A static member killed in between returns without a rebalance (KIP-345) or memory of the revocation. A static
leader that returns assigns nothing (KIP-814), neither withheld nor new partitions. No other member would notice.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from busway.consumer.coordinator import Coordinator
from busway.errors import BrokerError
from busway.types import TopicPartition
from busway_protocol.assignors.consumer_protocol import decode_assignment
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import DescribeGroupsRequest, DescribeGroupsResponse

_STABLE: Final = "Stable"


def unassigned(counts: Mapping[str, int], assignments: Iterable[bytes]) -> list[TopicPartition]:
    shared = {partition for assignment in assignments for partition in decode_assignment(assignment)}
    every = (
        TopicPartition(topic, partition_index) for topic in sorted(counts) for partition_index in range(counts[topic])
    )
    return [partition for partition in every if partition not in shared]


async def unshared_now(coordinator: Coordinator, counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the group's unassigned partitions; none while it rebalances."""
    answer: DescribeGroupsResponse = await coordinator.ask(DescribeGroupsRequest(groups=[coordinator.group]))
    (group,) = answer.groups
    if (code := error_for(group.error_code)) is not ErrorCode.NONE:
        raise BrokerError(code, f"group {coordinator.group}")
    if group.group_state != _STABLE:
        return []
    return unassigned(counts, (member.member_assignment for member in group.members))
