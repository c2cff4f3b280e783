"""Whether a group has shared all there is.

What lives here: which partitions of the group's topics are in nobody's share. What does not: sharing (`membership_classic`), and doing it
again (`group`).

A cooperative round holds partitions back from their new owner until the old one has given them up, which then joins for a second round
(KIP-429). A static member that is killed in between has its place again when it comes back, without any round (KIP-345), and knows nothing
of what it was about to give up. A static leader that comes back shares nothing out (KIP-814): neither what it had held back, nor partitions
that are new since. Nobody else would ever notice.
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
    """The partitions of these topics, each with so many, that are in none of the assignments.

    Raises:
        MalformedMessage: an assignment is none.
    """
    shared = {partition for assignment in assignments for partition in decode_assignment(assignment)}
    every = (TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic]))
    return [partition for partition in every if partition not in shared]


async def unshared_now(coordinator: Coordinator, counts: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions that nobody has in the group as its coordinator knows it; none while it rebalances.

    Raises:
        BrokerError, ConnectionFailed, RequestTimedOut: as `Coordinator.ask`; the group is refused.
        MalformedMessage: a member's assignment cannot be read.
    """
    answer: DescribeGroupsResponse = await coordinator.ask(DescribeGroupsRequest(groups=[coordinator.group]))
    (group,) = answer.groups
    if (code := error_for(group.error_code)) is not ErrorCode.NONE:
        raise BrokerError(code, f"group {coordinator.group}")
    if group.group_state != _STABLE:
        return []
    return unassigned(counts, (member.member_assignment for member in group.members))
