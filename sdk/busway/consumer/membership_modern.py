"""Protocol state of a consumer group member (KIP-848).

Not here: requests (`heartbeat_modern`), processing assignments (`group_modern`).
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
"""Epoch with which a static member leaves; its partitions wait until its session ends."""

Share = frozenset[tuple[UUID, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A member from before joining until it has left (KIP-1082)."""

    group: str
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSubscription:
    """A member's subscription; `pattern` is RE2, without `assignor` the group chooses."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern)


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    epoch: int
    share: Share


@dataclass(frozen=True, slots=True)
class _KnownState:
    """State known to the coordinator; `acknowledged` counts completed assignments."""

    subscription: DesiredSubscription
    acknowledged: int


class HeartbeatState:
    """One session of a member. Requests are sequential: each has a response, or has failed, before the next."""

    def __init__(self, identity: Identity, subscription: DesiredSubscription) -> None:
        self.identity = identity
        self._subscription = subscription
        self._epoch = JOIN
        self._has: Share = frozenset()
        self._acknowledged = 0
        self._sent = _KnownState(subscription, 0)
        self._known: _KnownState | None = None
        self._share: Share = frozenset()

    @property
    def has_news(self) -> bool:
        return self._known != _KnownState(self._subscription, self._acknowledged)

    def wants(self, subscription: DesiredSubscription) -> None:
        self._subscription = subscription

    def has(self, share: Share, *, done: bool) -> None:
        self._has = share
        self._acknowledged += done

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Build a request of what changed, or of everything if the last may be lost."""
        joins = self._epoch == JOIN
        known = None if joins else self._known
        self._sent = _KnownState(self._subscription, self._acknowledged)
        desired = self._subscription
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.identity.group,
            member_id=self.identity.member_id,
            member_epoch=self._epoch,
            instance_id=self.identity.instance_id,
        )
        if known is None:
            request.rebalance_timeout_ms = desired.rebalance_timeout_ms
            request.server_assignor = desired.assignor
        if known is None or known.subscription.topics != desired.topics:
            request.subscribed_topic_names = list(desired.topics)
        if known is None and not joins:
            request.subscribed_topic_regex = desired.pattern or ""  # an empty pattern clears an earlier one
        elif known is None or known.subscription.pattern != desired.pattern:
            request.subscribed_topic_regex = desired.pattern if joins else desired.pattern or ""
        if joins:
            request.topic_partitions = []
        elif known is None or known.acknowledged != self._acknowledged:
            request.topic_partitions = by_topic(self._has)
        return request

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> TargetAssignment:
        self._known = self._sent
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._share = frozenset(
                (topic.topic_id, partition_index)
                for topic in answer.assignment.topic_partitions
                for partition_index in topic.partitions
            )
        return TargetAssignment(self._epoch, self._share)

    def unanswered(self) -> None:
        self._known = None


def by_topic(share: Share) -> list[TopicPartitions]:
    numbers: dict[UUID, list[int]] = {}
    for topic_id, partition_index in sorted(share):
        numbers.setdefault(topic_id, []).append(partition_index)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in numbers.items()]


def leave_request(identity: Identity) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group,
        member_id=identity.member_id,
        member_epoch=LEAVE if identity.instance_id is None else LEAVE_FOR_A_WHILE,
        instance_id=identity.instance_id,
    )


def resolved(share: Share, names: Mapping[UUID, str]) -> tuple[Share, frozenset[UUID]]:
    known = frozenset(partition for partition in share if partition[0] in names)
    return known, frozenset(topic_id for topic_id, _ in share if topic_id not in names)
