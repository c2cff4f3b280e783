"""One member's side of a group that its coordinator balances (KIP-848): what it sends, and what it makes of the answers.

What lives here: `HeartbeatState`, from joining to the end of the session: the member's epoch, what the coordinator has heard of already, and
what it gives. What does not: requests and waiting (`heartbeat_modern`), what the member does with what it is given (`group_modern`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_protocol.messages.groups_modern import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""What a static member says: its partitions wait for it until its session ends."""

Share = frozenset[tuple[UUID, int]]
"""Partitions by the id of their topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A member as its group knows it from before it joins until it has left (KIP-1082)."""

    group: str
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSubscription:
    """What a member wants of its group.

    Attributes:
        topics: in order.
        pattern: in RE2's syntax, matched by the coordinator.
        assignor: which of the coordinator's assignors shares; None leaves it to the group.
        rebalance_timeout_ms: partitions that are taken have to be given up within it.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern)


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """What the coordinator has given last: a member epoch, and the partitions of it."""

    epoch: int
    share: Share


@dataclass(frozen=True, slots=True)
class _Said:
    """What the coordinator knows; `acknowledged` counts how often partitions were taken over or given up."""

    wish: DesiredSubscription
    acknowledged: int


class HeartbeatState:
    """One session of a member. Requests go out one after the other: each is answered, or is known not to be, before the next."""

    def __init__(self, identity: Identity, wish: DesiredSubscription) -> None:
        self.identity = identity
        self._wish = wish
        self._epoch = JOIN
        self._has: Share = frozenset()
        self._acknowledged = 0
        self._saying = _Said(wish, 0)
        self._said: _Said | None = None
        self._share: Share = frozenset()

    @property
    def has_news(self) -> bool:
        """Whether the coordinator has to hear something before the next beat is due."""
        return self._said != _Said(self._wish, self._acknowledged)

    def wants(self, wish: DesiredSubscription) -> None:
        """The member wants something else from now on."""
        self._wish = wish

    def has(self, share: Share, *, done: bool) -> None:
        """The member has these partitions; once it is `done` with what it was given, the coordinator is told so."""
        self._has = share
        self._acknowledged += done

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """The next request: what the coordinator has not heard yet; all there is if it may not have heard the last one."""
        joins = self._epoch == JOIN
        said = None if joins else self._said
        self._saying = _Said(self._wish, self._acknowledged)
        wish = self._wish
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.identity.group,
            member_id=self.identity.member_id,
            member_epoch=self._epoch,
            instance_id=self.identity.instance_id,
        )
        if said is None:
            request.rebalance_timeout_ms = wish.rebalance_timeout_ms
            request.server_assignor = wish.assignor
        if said is None or said.wish.topics != wish.topics:
            request.subscribed_topic_names = list(wish.topics)
        if said is None and not joins:
            request.subscribed_topic_regex = wish.pattern or ""  # the empty one takes an earlier one back
        elif said is None or said.wish.pattern != wish.pattern:
            request.subscribed_topic_regex = wish.pattern if joins else wish.pattern or ""
        if joins:
            request.topic_partitions = []
        elif said is None or said.acknowledged != self._acknowledged:
            request.topic_partitions = by_topic(self._has)
        return request

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> TargetAssignment:
        """The coordinator has heard the last request; what it gives."""
        self._said = self._saying
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._share = frozenset(
                (topic.topic_id, number) for topic in answer.assignment.topic_partitions for number in topic.partitions
            )
        return TargetAssignment(self._epoch, self._share)

    def unanswered(self) -> None:
        """The coordinator may not have heard the last request."""
        self._said = None


def by_topic(share: Share) -> list[TopicPartitions]:
    """As requests name partitions."""
    numbers: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(share):
        numbers.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in numbers.items()]


def farewell(identity: Identity) -> ConsumerGroupHeartbeatRequest:
    """Leaves the group, a static member only for a while."""
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group,
        member_id=identity.member_id,
        member_epoch=LEAVE if identity.instance_id is None else LEAVE_FOR_A_WHILE,
        instance_id=identity.instance_id,
    )


def resolved(share: Share, names: Mapping[UUID, str]) -> tuple[Share, frozenset[UUID]]:
    """Of some partitions those whose topic has a name, and the ids of the topics that have none."""
    known = frozenset(partition for partition in share if partition[0] in names)
    return known, frozenset(topic_id for topic_id, _ in share if topic_id not in names)
