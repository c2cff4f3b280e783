"""What goes into a consumer group and what comes out: requests, answers, settings.

What lives here: the values. What does not: what becomes of them (`consumer_group`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from busway_bus.kernel.limits import ASSIGNED_AT_ONCE_MAX

Said = Mapping[UUID, Collection[int]] | None
"""What a member says that it has, by topic; None where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member's heartbeat; what is None has not changed.

    Attributes:
        epoch: 0 to join, -1 to leave, -2 for a static member that goes for a while.
        said: what it says that it has.
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
    said: Said

    @property
    def whole(self) -> bool:
        """Whether it says everything, as members do that join, or that do not know what has arrived."""
        subscribes = self.topics is not None or self.regex is not None
        return self.epoch == 0 or (self.rebalance_timeout_ms != -1 and subscribes and self.said is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The answer to a heartbeat.

    Attributes:
        assigned: what the member may read; None where that has not changed.
        unresolved: regular expressions that are to be resolved, for this group.
        unassigned: whether the group is to be balanced a step at a time.
    """

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Mapping[UUID, tuple[int, ...]] | None = None
    unresolved: tuple[str, ...] = ()
    unassigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What is set for one group: its own settings, the broker's where it has none."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class MigrationPolicy(Enum):
    """Which way groups with members may change between the classic and the consumer protocol, with Kafka's names."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group with the first member that is for one."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic one when only members of the classic protocol are left."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """Kafka's group.consumer.* settings.

    Attributes:
        assignors: the names of those that are served; the first is for groups whose members do not ask for one.
        migration: which way groups with members may change their protocol.
        assigned_at_once: see `ASSIGNED_AT_ONCE_MAX`.
        of_group: what is set for a group of this id.
    """

    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    regex_refresh_ms: int = 600_000
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assigned_at_once: int = ASSIGNED_AT_ONCE_MAX
    of_group: Callable[[str], GroupSettings] = lambda group_id: GroupSettings()
