"""A classic consumer group: join, sync, heartbeat, leave, as a machine without clock or socket.

What lives here: what moves the states (KIP-62, KIP-345 static members, KIP-394 member ids, KIP-814, KAFKA-13418 sync time-out).
What does not: who is in (`roster`), offsets (`shard`), storage and waiting (`coordinator.runtime`). Requests that must wait
carry a waiter; answers that become due are put into `outbox`. `dirty` says that the generation has to be written down.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from busway_bus.groups.classic_member import Member, Waiter, protocols_bytes
from busway_bus.groups.classic_values import LEGAL_FROM, GroupLimits, Join, Joined, State, Sync, Synced
from busway_bus.groups.records import GroupMetadataValue
from busway_bus.groups.roster import Roster
from busway_bus.kernel.limits import MEMBER_BYTES, PENDING_GROUP_MEMBERS_MAX
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode

SILENT_WAIT_MS_MIN: Final = 1_000
"""How long silent static members are waited for at least; a member may ask for 0, and the timer must not spin."""


class ClassicGroup:
    """One group.

    Attributes:
        outbox: (waiter, answer) pairs that are due.
        dirty: the generation changed and must be written before the outbox is sent.
        subscribed: the topics of this generation's members; None when they cannot be told.
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
        self.roster = Roster(limits.memory)
        self.subscribed: frozenset[str] | None = None
        self._join_deadline_ms: int | None = None
        self._delay_until_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._unsynced: set[str] = set()
        self.outbox: list[tuple[Waiter, Joined | Synced]] = []
        self.dirty = False

    @property
    def members(self) -> dict[str, Member]:
        """The members by id."""
        return self.roster.members

    # Requests

    def join(self, request: Join, waiter: Waiter, now: int) -> Joined | None:
        """Join or join again; None when the answer comes through the outbox."""
        error = self._join_error(request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.roster.pending.discard(request.member_id)
            return Joined(error=error)
        if error is not ErrorCode.NONE:
            return Joined(error=error, member_id=request.member_id)
        if request.member_id == "":
            return self._join_unknown(request, waiter, now)
        if request.member_id in self.roster.pending:
            self._add(request.member_id, request, waiter, now)
            return None
        return self._rejoin(self.members[request.member_id], request, waiter, now)

    def _join_error(self, request: Join) -> ErrorCode:
        roster = self.roster
        refused = self._limits.refuse(request)
        if refused is not None:
            return refused
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(request.member_id) or not self._has_memory(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        same_type = not roster.members or self.protocol_type == request.protocol_type
        if not request.protocol_type or not same_type or not roster.speak(request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id == "":
            return ErrorCode.NONE
        if request.member_id in roster.pending:
            return ErrorCode.NONE if request.instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        return roster.identity_error(request.member_id, request.instance_id)

    def _has_room(self, member_id: str) -> bool:
        """While members join again those that wait count, so that a group that is too large loses the last to come."""
        if self.state is State.EMPTY:
            return member_id in self.roster.pending or len(self.roster.pending) < PENDING_GROUP_MEMBERS_MAX
        known = self.members.get(member_id)
        if self.state is State.PREPARING:
            return (known is not None and known.join is not None) or self.roster.joining < self._limits.max_size
        return known is not None or len(self.roster) < self._limits.max_size

    def _has_memory(self, request: Join) -> bool:
        """Whether what the member brings fits: a refusal, so that one group cannot take the memory of all."""
        known = self.members.get(request.member_id)
        more = protocols_bytes(request.protocols)
        if known is not None:
            more -= protocols_bytes(known.protocols)
        else:
            more += MEMBER_BYTES + len(request.client_id) + 2 * len(request.instance_id or "")
        return self.roster.has_room(more)

    def _join_unknown(self, request: Join, waiter: Waiter, now: int) -> Joined | None:
        member_id = self._new_id(request.instance_id or request.client_id)
        if request.instance_id is not None:
            if self.roster.owner(request.instance_id) is not None:
                self._replace_static(request.instance_id, member_id, request, waiter, now)
                return None
        elif request.needs_known_id:
            if len(self.roster.pending) >= PENDING_GROUP_MEMBERS_MAX:
                return Joined(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.roster.pending[member_id] = now + request.session_timeout_ms
            return Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        self._add(member_id, request, waiter, now)
        return None

    def _add(self, member_id: str, request: Join, waiter: Waiter, now: int) -> None:
        self.roster.add(
            Member(
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
        )
        self.protocol_type = request.protocol_type
        if self._delay_until_ms is not None and self._join_deadline_ms is not None:
            # Members that come while a new group gathers push the moment back, up to the rebalance timeout.
            later = now + self._limits.initial_rebalance_delay_ms
            self._delay_until_ms = min(max(self._delay_until_ms, later), self._join_deadline_ms)
        self._rebalance(now)

    def _rejoin(self, member: Member, request: Join, waiter: Waiter, now: int) -> Joined | None:
        changed = member.protocols != request.protocols
        leads = member.member_id == self.roster.leader
        settled = self.state is State.COMPLETING or (self.state is State.STABLE and not leads)
        if settled and not changed:
            member.touch(now)
            return self._joined(member)
        if member.join is not None:
            # The client asks again; whoever still listens to the first request has to as well.
            self.outbox.append((member.join, Joined(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)))
        self._renew(member, request, now)
        member.join = waiter
        self._rebalance(now)
        return None

    def _renew(self, member: Member, request: Join, now: int) -> None:
        self.roster.teach(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.touch(now)
        self.roster.count(member)

    def _replace_static(self, instance_id: str, member_id: str, request: Join, waiter: Waiter, now: int) -> None:
        """A static member came back under a new id: the old one is fenced, and nobody else has to move (KIP-345)."""
        old_id = self.roster.owner(instance_id)
        assert old_id is not None
        leads = self.roster.leader == old_id
        member = self.roster.rename(old_id, member_id)
        if old_id in self._unsynced:
            self._unsynced = self._unsynced - {old_id} | {member_id}
        self._turn_away(member, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self._renew(member, request, now)
        if self.state is not State.STABLE or self.roster.vote() != self.protocol:
            member.join = waiter
            self._rebalance(now)
            return
        self.dirty = True
        answer = self._joined(member)
        if leads and request.can_skip_assignment:
            answer = replace(answer, skip_assignment=True)
        elif leads:
            # An older client must not assign again: it is told that the leader is someone else, its former self.
            answer = replace(answer, leader=old_id, members=())
        self.outbox.append((waiter, answer))

    def sync(self, request: Sync, waiter: Waiter, now: int) -> Synced | None:
        """Hand in or ask for assignments; None when the answer comes through the outbox."""
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return Synced(error=error)
        given = ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol))
        if any(named is not None and named != known for named, known in given):
            return Synced(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = self.members[request.member_id]
        member.touch(now)
        if self.state is State.PREPARING:
            return Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)
        given_bytes = sum(len(assignment) for _, assignment in request.assignments)
        if self.state is State.COMPLETING and not self.roster.has_room(given_bytes):
            return Synced(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._unsynced.discard(request.member_id)
        if self.state is State.STABLE:
            return self._synced(member)
        if member.sync is not None:
            self.outbox.append((member.sync, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync = waiter
        if request.member_id == self.roster.leader:
            self._assign(dict(request.assignments), now)
        return None

    def _assign(self, assignments: dict[str, bytes], now: int) -> None:
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            self.roster.count(member)
            if member.sync is not None:
                self.outbox.append((member.sync, self._synced(member)))
                member.sync = None
                member.touch(now)
        self._enter(State.STABLE, now)
        self.dirty = True

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        """Note that a member is alive; answers whether it has to join again."""
        error = self.check_member(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.members[member_id].touch(now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now: int) -> ErrorCode:
        """Take a member out; by its instance id alone where the member id is empty (an administrator's call)."""
        if member_id in self.roster.pending:
            del self.roster.pending[member_id]
            self._maybe_complete(now)
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            member_id = self.roster.owner(instance_id) or ""
        error = self.roster.identity_error(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(member_id)
            self._rebalance(now)
        return error

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this is a member of this generation."""
        error = self.roster.identity_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def commit(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        """Whether offsets may be committed: by a member, which shows so that it is alive, or by anyone while it is empty."""
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, instance_id, generation)
        if error is ErrorCode.NONE and self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE:
            self.members[member_id].touch(now)
        return error

    def reads(self, topic: str) -> bool:
        """Whether members read the topic; where a consumer group's subscriptions cannot be told, they may read any."""
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def abandon(self) -> None:
        """This node coordinates the group no longer: all that wait are told to look for who does."""
        self.roster.pending.clear()
        for member in self.roster:
            self._turn_away(member, ErrorCode.NOT_COORDINATOR, member.member_id)

    def end(self, now: int) -> None:
        """The group is deleted; whoever waits for an id here has to look for its coordinator again."""
        self.roster.pending.clear()
        self._enter(State.DEAD, now)

    # Time

    def next_deadline(self) -> int | None:
        """When `tick` has something to do, in ms; None for never."""
        moments = [member.deadline_ms for member in self.roster if not member.parked]
        moments += self.roster.pending.values()
        timers = (self._join_deadline_ms, self._delay_until_ms, self._sync_deadline_ms if self._unsynced else None)
        moments += [moment for moment in timers if moment is not None]
        return min(moments, default=None)

    def tick(self, now: int) -> None:
        """Expire members and end waits that are due."""
        for member_id in [found for found, deadline in self.roster.pending.items() if deadline <= now]:
            del self.roster.pending[member_id]
        expired = [member.member_id for member in self.roster if not member.parked and member.deadline_ms <= now]
        if self._unsynced and self._sync_deadline_ms is not None and self._sync_deadline_ms <= now:
            expired += [member_id for member_id in self._unsynced if member_id not in expired]
        for member_id in expired:
            self._remove(member_id)
        if expired:
            self._rebalance(now)
        if self._delay_until_ms is not None and self._delay_until_ms <= now:
            # The time to gather is over; those that hold an id and have not come back with it are not waited for.
            self._complete(now)
        elif self._join_deadline_ms is not None and self._join_deadline_ms <= now:
            self._complete(now)
        else:
            self._maybe_complete(now)

    # Moving

    def _enter(self, state: State, now: int) -> None:
        assert self.state in LEGAL_FROM[state], (self.state, state)
        self.state = state
        self.state_since_ms = now

    def _remove(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        self._turn_away(self.roster.remove(member_id), ErrorCode.UNKNOWN_MEMBER_ID, "")

    def _turn_away(self, member: Member, error: ErrorCode, member_id: str) -> None:
        """Answer what is parked for a member with an error."""
        if member.join is not None:
            self.outbox.append((member.join, Joined(error=error, member_id=member_id)))
        if member.sync is not None:
            self.outbox.append((member.sync, Synced(error=error)))
        member.join = member.sync = None

    def _rebalance(self, now: int) -> None:
        if self.state is not State.PREPARING:
            if self.state is State.COMPLETING:
                self._withdraw_assignments(now)
            timeout = self.roster.rebalance_timeout_ms
            fresh = self.state is State.EMPTY
            self._enter(State.PREPARING, now)
            self._sync_deadline_ms = None
            self._unsynced.clear()
            self._join_deadline_ms = now + timeout
            if fresh:
                self._delay_until_ms = now + min(self._limits.initial_rebalance_delay_ms, timeout)
                if self._delay_until_ms <= now:
                    self._complete(now)
                return
        self._maybe_complete(now)

    def _withdraw_assignments(self, now: int) -> None:
        for member in self.roster:
            member.assignment = b""
            self.roster.count(member)
            if member.sync is not None:
                self.outbox.append((member.sync, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)))
                member.sync = None
                member.touch(now)

    def _maybe_complete(self, now: int) -> None:
        if self.state is State.PREPARING and self._delay_until_ms is None and self.roster.complete:
            self._complete(now)

    def _complete(self, now: int) -> None:
        """All are here, or time is up: those who did not come are out, but static members keep their place."""
        for member in [found for found in self.roster if found.join is None and found.instance_id is None]:
            self._remove(member.member_id)
        self._join_deadline_ms = self._delay_until_ms = None
        if self.members and not self.roster.elect():
            # Only static members that stay silent are left; wait for them or for their sessions to end.
            self._join_deadline_ms = now + max(self.roster.rebalance_timeout_ms, SILENT_WAIT_MS_MIN)
            return
        self.generation += 1
        self.protocol = self.roster.vote() if self.members else None
        self.subscribed = self.roster.subscriptions(self.protocol_type, self.protocol)
        if not self.members:
            self._enter(State.EMPTY, now)
            self.dirty = True
            return
        self._enter(State.COMPLETING, now)
        self._sync_deadline_ms = now + self.roster.rebalance_timeout_ms
        self._unsynced = set(self.members)
        for member in self.roster:
            member.touch(now)
            if member.join is not None:
                self.outbox.append((member.join, self._joined(member)))
                member.join = None

    def _joined(self, member: Member) -> Joined:
        leads = member.member_id == self.roster.leader
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            members=self.roster.listing(self.protocol) if leads else (),
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    # Hard state

    def record(self) -> GroupMetadataValue:
        """The generation as it is written down."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            current_state_timestamp=self.state_since_ms,
            members=[member.record(self.protocol) for member in self.roster],
        )

    def restore(self, value: GroupMetadataValue, now: int) -> None:
        """Take over what was written down; members get one session from now to show themselves."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        found = [Member.restored(member, value.protocol, now) for member in value.members]
        self.roster = Roster(self._limits.memory, found, value.leader)
        self.subscribed = self.roster.subscriptions(self.protocol_type, self.protocol)
        self.state = State.STABLE if found else State.EMPTY
        self.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else now
