"""Requests and replies of members that speak the classic protocol, to groups of all kinds.

What lives here: the values. What does not: handling them (`classic.group`, `mixed`), those of the consumer protocol (`modern.requests`).
"""

from dataclasses import dataclass

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
