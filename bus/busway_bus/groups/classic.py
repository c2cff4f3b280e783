"""A classic consumer group: join, sync, heartbeat, leave, as a machine without clock or socket.

What lives here: the states and what moves them (KIP-62, KIP-345 static members, KIP-394 member ids, KIP-814). What does not:
offsets (`offsets`), storage and waiting (`coordinator.runtime`). Requests that must wait carry a waiter; answers that become
due are put into `outbox`. `dirty` says that the group's generation has to be written down.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from busway_bus.groups.classic_member import Member, Waiter
from busway_bus.groups.records import GroupMetadataValue, MemberMetadata
from busway_bus.kernel.limits import PENDING_GROUP_MEMBERS_MAX
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
    State.DEAD: {State.STABLE, State.PREPARING, State.COMPLETING, State.EMPTY, State.DEAD},
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
class Synced:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's group.* settings."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


class ClassicGroup:
    """One group.

    Attributes:
        outbox: (waiter, answer) pairs that are due.
        dirty: the generation changed and must be written before the outbox is sent.
    """

    def __init__(self, group_id: str, limits: GroupLimits, new_id: Callable[[str], str]) -> None:
        self.group_id = group_id
        self._limits = limits
        self._new_id = new_id
        self.state = State.EMPTY
        self.state_since_ms = 0
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._pending: dict[str, int] = {}
        self._join_deadline_ms: int | None = None
        self._delay_until_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self.outbox: list[tuple[Waiter, Joined | Synced]] = []
        self.dirty = False

    # Requests

    def join(self, request: Join, waiter: Waiter, now: int) -> Joined | None:  # noqa: PLR0911 - a refusal a line
        """Join or join again; None when the answer comes through the outbox."""
        limits = self._limits
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            return Joined(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id)
        if self.state is State.DEAD:
            return Joined(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=request.member_id)
        if not request.protocols or not request.protocol_type or not self._compatible(request):
            return Joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
        known = request.member_id in self.members or request.member_id in self._pending
        if not known and (len(self.members) >= limits.max_size or len(self._pending) >= PENDING_GROUP_MEMBERS_MAX):
            return Joined(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=request.member_id)
        if request.member_id == "":
            return self._join_unknown(request, waiter, now)
        error = self._identity_error(request.member_id, request.instance_id)
        if request.member_id in self._pending:
            if request.instance_id is not None:
                return Joined(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            del self._pending[request.member_id]
            self._add(request.member_id, request, waiter, now)
            return None
        if error is not ErrorCode.NONE:
            return Joined(error=error, member_id=request.member_id)
        return self._rejoin(self.members[request.member_id], request, waiter, now)

    def _join_unknown(self, request: Join, waiter: Waiter, now: int) -> Joined | None:
        member_id = self._new_id(request.instance_id or request.client_id)
        if request.instance_id is not None:
            if request.instance_id in self._static:
                return self._replace_static(member_id, request, waiter, now)
        elif request.needs_known_id:
            self._pending[member_id] = now + request.session_timeout_ms
            return Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        self._add(member_id, request, waiter, now)
        return None

    def _add(self, member_id: str, request: Join, waiter: Waiter, now: int) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            deadline_ms=now + request.session_timeout_ms,
            join=waiter,
        )
        self.members[member_id] = member
        self.protocol_type = request.protocol_type
        if request.instance_id is not None:
            self._static[request.instance_id] = member_id
        if self._delay_until_ms is not None and self._join_deadline_ms is not None:
            # Members that come while a new group gathers push the moment back, up to the rebalance timeout.
            later = now + self._limits.initial_rebalance_delay_ms
            self._delay_until_ms = min(max(self._delay_until_ms, later), self._join_deadline_ms)
        self._rebalance(now)

    def _rejoin(self, member: Member, request: Join, waiter: Waiter, now: int) -> Joined | None:
        changed = member.protocols != request.protocols
        leads = member.member_id == self.leader
        if self.state is State.COMPLETING and not changed:
            self._touch(member, now)
            return self._joined(member)
        if self.state is State.STABLE and not changed and not leads:
            self._touch(member, now)
            return self._joined(member)
        if member.join is not None:
            self.outbox.append((member.join, Joined(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id)))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.join = waiter
        self._touch(member, now)
        self._rebalance(now)
        return None

    def _replace_static(self, member_id: str, request: Join, waiter: Waiter, now: int) -> Joined | None:
        """A static member came back under a new id: the old one is fenced, and nobody else has to move (KIP-345)."""
        assert request.instance_id is not None
        old_id = self._static[request.instance_id]
        member = self.members.pop(old_id)
        for parked in (member.join, member.sync):
            if parked is not None:
                answer = (Joined if parked is member.join else Synced)(error=ErrorCode.FENCED_INSTANCE_ID)
                self.outbox.append((parked, answer))
        member.join = member.sync = None
        member.member_id = member_id
        self.members[member_id] = member
        self._static[request.instance_id] = member_id
        was_leader = self.leader == old_id
        if was_leader:
            self.leader = member_id
        unchanged = self.protocol is not None and self.protocol in dict(request.protocols)
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._touch(member, now)
        if self.state is State.STABLE and unchanged:
            self.dirty = True
            answer = self._joined(member)
            if not was_leader:
                self.outbox.append((waiter, answer))
            elif request.can_skip_assignment:
                self.outbox.append((waiter, _replace(answer, members=self._roster(), skip_assignment=True)))
            else:
                # An older client must not assign again: it is told that the leader is someone else, its former self.
                self.outbox.append((waiter, _replace(answer, leader=old_id)))
            return None
        member.join = waiter
        self._rebalance(now)
        return None

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Sequence[tuple[str, bytes]],
        *,
        waiter: Waiter,
        now: int,
    ) -> Synced | None:
        """Hand in or ask for assignments; None when the answer comes through the outbox."""
        error = self.check_member(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return Synced(error=error)
        member = self.members[member_id]
        self._touch(member, now)
        if self.state is State.PREPARING:
            return Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is State.STABLE:
            return Synced(assignment=member.assignment)
        if member.sync is not None:
            self.outbox.append((member.sync, Synced(error=ErrorCode.UNKNOWN_MEMBER_ID)))
        member.sync = waiter
        if member_id == self.leader:
            given = dict(assignments)
            for other in self.members.values():
                other.assignment = given.get(other.member_id, b"")
                if other.sync is not None:
                    self.outbox.append((other.sync, Synced(assignment=other.assignment)))
                    other.sync = None
                    self._touch(other, now)
            self._enter(State.STABLE, now)
            self._sync_deadline_ms = None
            self.dirty = True
        return None

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        """Note that a member is alive; answers whether it has to join again."""
        if member_id in self._pending and generation < 0:
            return ErrorCode.NONE
        error = self.check_member(member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            self._touch(self.members[member_id], now)
            if self.state is State.PREPARING:
                return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def leave(self, member_id: str, instance_id: str | None, now: int) -> ErrorCode:
        """Take a member out; by its instance id alone where the member id is empty (an administrator's call)."""
        if member_id in self._pending:
            del self._pending[member_id]
            self._maybe_complete(now)
            return ErrorCode.NONE
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = owner
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member_id)
        self._rebalance(now)
        return ErrorCode.NONE

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this is a member of this generation."""
        error = self._identity_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether offsets may be committed: by a member of this generation, or by nobody in particular when it is empty."""
        if generation < 0 and not member_id and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        error = self.check_member(member_id, instance_id, generation)
        if error is ErrorCode.NONE and self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def delete(self, now: int) -> ErrorCode:
        """End the group; only an empty one may."""
        if self.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._enter(State.DEAD, now)
        return ErrorCode.NONE

    # Time

    def next_deadline(self) -> int | None:
        """When `tick` has something to do, in ms; None for never."""
        moments = [member.deadline_ms for member in self.members.values() if not member.parked]
        moments += self._pending.values()
        moments += [
            moment
            for moment in (self._join_deadline_ms, self._delay_until_ms, self._sync_deadline_ms)
            if moment is not None
        ]
        return min(moments, default=None)

    def tick(self, now: int) -> None:
        """Expire members and end waits that are due."""
        for member_id in [found for found, deadline in self._pending.items() if deadline <= now]:
            del self._pending[member_id]
        expired = [
            member.member_id for member in self.members.values() if not member.parked and member.deadline_ms <= now
        ]
        for member_id in expired:
            self._remove(member_id)
        if expired:
            self._rebalance(now)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now and self.state is State.COMPLETING:
            for member in [found for found in self.members.values() if found.sync is None]:
                self._remove(member.member_id)
            self._rebalance(now)
        if self._delay_until_ms is not None and self._delay_until_ms <= now:
            self._delay_until_ms = None
        if self.state is State.PREPARING:
            if self._join_deadline_ms is not None and self._join_deadline_ms <= now:
                self._complete(now)
            else:
                self._maybe_complete(now)

    # Moving

    def _enter(self, state: State, now: int) -> None:
        assert self.state in LEGAL_FROM[state], (self.state, state)
        self.state = state
        self.state_since_ms = now

    def _touch(self, member: Member, now: int) -> None:
        member.deadline_ms = now + member.session_timeout_ms

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        if member.join is not None:
            self.outbox.append((member.join, Joined(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)))
        if member.sync is not None:
            self.outbox.append((member.sync, Synced(error=ErrorCode.UNKNOWN_MEMBER_ID)))
        if self.leader == member_id:
            self.leader = None

    def _rebalance(self, now: int) -> None:
        if self.state is not State.PREPARING:
            if self.state is State.EMPTY and not self.members:
                return
            if self.state is State.COMPLETING:
                for member in self.members.values():
                    member.assignment = b""
                    if member.sync is not None:
                        self.outbox.append((member.sync, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)))
                        member.sync = None
                        self._touch(member, now)
            timeout = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
            fresh = self.state is State.EMPTY
            self._enter(State.PREPARING, now)
            self._sync_deadline_ms = None
            self._join_deadline_ms = now + timeout
            delay = min(self._limits.initial_rebalance_delay_ms, timeout)
            self._delay_until_ms = now + delay if fresh and delay > 0 else None
        self._maybe_complete(now)

    def _maybe_complete(self, now: int) -> None:
        if self.state is not State.PREPARING or self._delay_until_ms is not None or self._pending:
            return
        if all(member.join is not None for member in self.members.values()):
            self._complete(now)

    def _complete(self, now: int) -> None:
        """All are here, or time is up: those who did not come are out, but static members keep their place."""
        for member in [found for found in self.members.values() if found.join is None and found.instance_id is None]:
            self._remove(member.member_id)
        self._join_deadline_ms = self._delay_until_ms = None
        self.generation += 1
        self.dirty = True
        if not self.members:
            self._enter(State.EMPTY, now)
            self.protocol = self.leader = None
            return
        joined = [member for member in self.members.values() if member.join is not None]
        if not joined:
            # Only static members that stay silent are left; wait for them or for their sessions to end.
            self.generation -= 1
            self.dirty = False
            self._join_deadline_ms = now + max(member.rebalance_timeout_ms for member in self.members.values())
            return
        self.protocol = self._vote()
        if self.leader is None or self.members[self.leader].join is None:
            self.leader = joined[0].member_id
        self._enter(State.COMPLETING, now)
        self.dirty = False
        self._sync_deadline_ms = now + max(member.rebalance_timeout_ms for member in joined)
        for member in joined:
            waiter, member.join = member.join, None
            self._touch(member, now)
            self.outbox.append((waiter, self._joined(member)))

    def _joined(self, member: Member) -> Joined:
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader or "",
            members=self._roster() if member.member_id == self.leader else (),
        )

    def _roster(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol)) for member in self.members.values()
        )

    def _vote(self) -> str:
        """The protocol that most members put first among those that all of them know."""
        common = set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))
        assert common, "a member without a common protocol is never let in"
        votes: dict[str, int] = {}
        for member in self.members.values():
            first = next(name for name, _ in member.protocols if name in common)
            votes[first] = votes.get(first, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _compatible(self, request: Join) -> bool:
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        others = [
            member for member in others if request.instance_id is None or member.instance_id != request.instance_id
        ]
        if not others:
            return True
        if self.protocol_type != request.protocol_type:
            return False
        common = set.intersection(*({name for name, _ in member.protocols} for member in others))
        return any(name in common for name, _ in request.protocols)

    # Hard state

    def record(self) -> GroupMetadataValue:
        """The generation as it is written down."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def restore(self, value: GroupMetadataValue, now: int) -> None:
        """Take over what was written down; members get one session from now to show themselves."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.members = {
            found.member_id: Member(
                member_id=found.member_id,
                instance_id=found.group_instance_id,
                client_id=found.client_id,
                client_host=found.client_host,
                session_timeout_ms=found.session_timeout,
                rebalance_timeout_ms=found.rebalance_timeout,
                protocols=((value.protocol or "", found.subscription),),
                deadline_ms=now + found.session_timeout,
                assignment=found.assignment,
            )
            for found in value.members
        }
        self._static = {
            member.instance_id: member.member_id for member in self.members.values() if member.instance_id is not None
        }
        self.state = State.STABLE if self.members else State.EMPTY
        self.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else now


def _replace(
    answer: Joined,
    *,
    leader: str | None = None,
    members: tuple[tuple[str, str | None, bytes], ...] = (),
    skip_assignment: bool = False,
) -> Joined:
    return Joined(
        member_id=answer.member_id,
        generation=answer.generation,
        protocol=answer.protocol,
        leader=answer.leader if leader is None else leader,
        members=members,
        skip_assignment=skip_assignment,
    )
