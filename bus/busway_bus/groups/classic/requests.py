"""What goes into a classic group and what comes out: requests, answers, limits.

What lives here: the values. What does not: the states (`states`), who is in the group (`members`), what moves it (`group`).
"""

from dataclasses import dataclass, field

from busway_bus.groups.committed import OffsetMemory
from busway_bus.groups.memory_quota import GroupMemory, pending_share
from busway_bus.groups.modern.requests import ConsumerLimits
from busway_bus.kernel.fair_share import FairShare
from busway_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member's request to join."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool
    can_skip_assignment: bool
    reason: str | None = None

    @property
    def called(self) -> str:
        """What a member id that is made for it begins with."""
        return self.client_id if self.instance_id is None else self.instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a join; `unassigned` tells whether a group that the coordinator balances is to be balanced a step at a time."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False
    unassigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member's request for its assignment; `assignments` is the leader's. Protocols are checked where they are given."""

    member_id: str
    instance_id: str | None
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's group.* settings and offset.metadata.max.bytes, and what all groups may hold.

    Attributes:
        memory: of their members.
        pending: of offsets within transactions.
        offsets: of offsets that are in force, and of groups beside their members.
        consumer: what is set for groups that the coordinator balances.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_offset_metadata_bytes: int = 4_096
    consumer: ConsumerLimits = field(default_factory=ConsumerLimits)
    memory: GroupMemory = field(default_factory=GroupMemory)
    pending: FairShare = field(default_factory=pending_share)
    offsets: OffsetMemory = field(default_factory=OffsetMemory)
