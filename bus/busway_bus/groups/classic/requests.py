"""Requests, replies and limits of classic groups.

What lives here: the values. What does not: the states (`states`), the members (`members`), handling (`group`).
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
        """The prefix of a new member id."""
        return self.client_id if self.instance_id is None else self.instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The reply to a join. `unassigned`: a consumer group must plan a target assignment."""

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
    """A member's sync, with the leader's `assignments`. Protocols are checked if given."""

    member_id: str
    instance_id: str | None
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The reply to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's group.* settings and offset.metadata.max.bytes, and the memory of all groups.

    Attributes:
        memory: of their members.
        pending: of offsets in open transactions.
        offsets: of committed offsets, and of groups without their members.
        consumer: settings of consumer groups.
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
