"""Protocol state of a classic group member.

Not here: requests and waiting (`group_classic`).
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
    """Member of a classic group; all members offer the leader's strategy."""

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
        """Whether the group last chose a cooperative strategy (KIP-429), which reads through rebalances."""
        return self.protocol in COOPERATIVE

    @property
    def offered(self) -> list[str]:
        """The strategies for the next join.

        Only cooperative ones while partitions are owned under such a strategy: an eager leader would reassign them
        before they are revoked.
        """
        if self.cooperative and self.owned:
            return [name for name in self.strategies if name in COOPERATIVE]
        return list(self.strategies)

    @property
    def narrowed(self) -> bool:
        return len(self.offered) < len(self.strategies)

    def protocols(self, topics: Iterable[str]) -> list[JoinGroupRequestProtocol]:
        subscription = Subscription(
            topics=tuple(sorted(topics)),
            owned_partitions=tuple((partition.topic, partition.partition) for partition in self.owned),
            generation_id=self.generation,
        )
        data = encode_subscription(subscription)
        return [JoinGroupRequestProtocol(name=name, metadata=data) for name in self.offered]

    def joined(self, member_id: str, generation: int, protocol: str) -> None:
        self.member_id: str = member_id
        self.generation: int = generation
        self.protocol = protocol

    def wanted_topics(self, members: Sequence[JoinGroupResponseMember]) -> set[str]:
        return {topic for member in members for topic in decode_subscription(member.metadata).topics}

    def assign(
        self, members: Sequence[JoinGroupResponseMember], partitions: Mapping[str, int]
    ) -> list[tuple[str, bytes]]:
        subscriptions = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id) for member in members
        }
        shares = ASSIGNORS[self.protocol](partitions, subscriptions)
        return [(member_id, encode_assignment(shares.get(member_id, ()))) for member_id in subscriptions]
