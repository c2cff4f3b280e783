"""Requests, replies and settings of consumer groups.

Here: the values.
Not here: their handling (`consumer_group`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from busway_bus.kernel.limits import ASSIGNED_AT_ONCE_MAX

OwnedPartitions = Mapping[UUID, Collection[int]] | None
"""Reported owned partitions, by topic id; None if not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member's heartbeat; None for an unchanged field.

    Attributes:
        epoch: 0 to join, -1 to leave, -2 to leave temporarily (static).
    """

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: OwnedPartitions

    @property
    def whole(self) -> bool:
        """Whether it is full: on joining, or after a possibly lost response."""
        subscribes = self.topics is not None or self.regex is not None
        return self.epoch == 0 or (self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The reply to a heartbeat.

    Attributes:
        assigned: partitions that the member may read; None if unchanged.
        unassigned: a target assignment must be planned.
    """

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Mapping[UUID, tuple[int, ...]] | None = None
    unresolved: tuple[str, ...] = ()
    unassigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """One group's settings, by default the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class MigrationPolicy(Enum):
    """Allowed conversions of non-empty groups between protocols, with Kafka's names."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether the first consumer-protocol member converts a classic group."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group with only classic members becomes classic."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """Kafka's group.consumer.* settings.

    Attributes:
        assignors: the default first.
        assigned_at_once: see `ASSIGNED_AT_ONCE_MAX`.
    """

    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    regex_refresh_ms: int = 600_000
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assigned_at_once: int = ASSIGNED_AT_ONCE_MAX
    of_group: Callable[[str], GroupSettings] = lambda group_id: GroupSettings()
