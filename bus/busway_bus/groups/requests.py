"""Requests and replies of classic members, to groups of all kinds.

Here: the values.
Not here: handling (`classic.group`, `mixed`), the consumer protocol (`modern.requests`).
"""

from dataclasses import dataclass

from busway_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
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
    """The reply to a join. `unassigned`: a target assignment must be planned."""

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
    """A member's sync, with the leader's `assignments`. Given protocols are checked."""

    member_id: str
    instance_id: str | None
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
