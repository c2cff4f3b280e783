"""What goes into a classic group and what comes out: states, requests, answers, limits.

What lives here: the values and the table of legal moves. What does not: who is in the group (`roster`), what moves it (`classic`).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from busway_bus.groups.memory import GroupMemory
from busway_protocol.errors import ErrorCode


class State(Enum):
    """The states with Kafka's names.

    Empty: no members; offsets may be left. PreparingRebalance: members are asked to join again; ends when all have, or at the
    deadline. CompletingRebalance: everyone has joined, the leader's assignment is awaited. Stable: all have their assignment.
    Dead: the group is deleted.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_FROM: Final = {
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.EMPTY: {State.PREPARING},
    State.DEAD: {State.EMPTY},
}
"""state → the states it may be entered from; anything else is a mistake of ours."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a join."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


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
class Synced:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's group.* settings, and what all groups may hold."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    memory: GroupMemory = field(default_factory=GroupMemory)

    def refuse(self, request: Join) -> ErrorCode | None:
        """What is wrong with a join whatever the group: INVALID_SESSION_TIMEOUT, or None."""
        inside = self.min_session_timeout_ms <= request.session_timeout_ms <= self.max_session_timeout_ms
        return None if inside else ErrorCode.INVALID_SESSION_TIMEOUT
