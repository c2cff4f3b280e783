"""One member's side of a classic group: what it sends, and what it makes of the answers.

What lives here: subscription bytes, the leader's assignment, what is revoked in the eager and the cooperative way (KIP-429).
What does not: requests and waiting (`group`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from busway.consumer.membership import Membership
from busway_protocol.assignors import cooperative_sticky, round_robin, sticky
from busway_protocol.assignors import range as range_assignor
from busway_protocol.assignors.consumer_protocol import decode_subscription, encode_assignment, encode_subscription
from busway_protocol.assignors.subscription import Assignment, Subscription
from busway_protocol.messages.groups_classic import JoinGroupRequestProtocol, JoinGroupResponseMember

Assign = Callable[[Mapping[str, int], Mapping[str, Subscription]], Assignment]
ASSIGNORS: Final[Mapping[str, Assign]] = {
    range_assignor.NAME: range_assignor.assign,
    round_robin.NAME: round_robin.assign,
    sticky.NAME: sticky.assign,
    cooperative_sticky.NAME: cooperative_sticky.assign,
}
COOPERATIVE: Final = frozenset({cooperative_sticky.NAME})


@dataclass(slots=True, kw_only=True)
class ClassicMembership(Membership):
    """A member of a classic group, whose leader shares by a strategy that all members offer."""

    strategies: Sequence[str]
    protocol: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.strategies if name not in ASSIGNORS]
        if unknown or not self.strategies:
            raise ValueError(
                f"partition_assignment_strategy: {unknown or 'nothing'} is not among {', '.join(ASSIGNORS)}"
            )

    @property
    def cooperative(self) -> bool:
        """Whether this member keeps reading through a rebalance: when its group chose a cooperative strategy last."""
        return self.protocol in COOPERATIVE

    @property
    def offered(self) -> list[str]:
        """The strategies for the next join: cooperative ones alone while partitions are held on to that a group chose one for.

        If the group could choose an eager one then, its leader would hand out at once what this member has not given up.
        """
        if self.cooperative and self.owned:
            return [name for name in self.strategies if name in COOPERATIVE]
        return list(self.strategies)

    @property
    def narrowed(self) -> bool:
        """Whether more could be offered once everything is given up."""
        return len(self.offered) < len(self.strategies)

    def protocols(self, topics: Iterable[str]) -> list[JoinGroupRequestProtocol]:
        """The subscription under each strategy that is offered."""
        subscription = Subscription(
            topics=tuple(sorted(topics)),
            owned_partitions=tuple((partition.topic, partition.partition) for partition in self.owned),
            generation_id=self.generation,
        )
        data = encode_subscription(subscription)
        return [JoinGroupRequestProtocol(name=name, metadata=data) for name in self.offered]

    def joined(self, member_id: str, generation: int, protocol: str) -> None:
        """Take the answer of a join in."""
        self.member_id, self.generation, self.protocol = member_id, generation, protocol

    def wanted_topics(self, members: Sequence[JoinGroupResponseMember]) -> set[str]:
        """All topics that members of the group subscribe to."""
        return {topic for member in members for topic in decode_subscription(member.metadata).topics}

    def assign(
        self, members: Sequence[JoinGroupResponseMember], partitions: Mapping[str, int]
    ) -> list[tuple[str, bytes]]:
        """The leader's work: (member id, assignment) for everyone."""
        subscriptions = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id) for member in members
        }
        shares = ASSIGNORS[self.protocol](partitions, subscriptions)
        return [(member_id, encode_assignment(shares.get(member_id, ()))) for member_id in subscriptions]
