"""A classic consumer group as a state machine without clock or socket.

Here: the effects of requests and time (KIP-62, KIP-345, KIP-394, KIP-814, KAFKA-13418).
Not here: states (`states`), members (`members`), refusals (`join_checks`, `state`), offsets (`shard`).

Only `apply` changes a stored generation. Members that gather for the next one are lost with the coordinator, as in
Kafka. If a record cannot be written, the state stays: members or the clock retry.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from busway_bus.groups.classic.join_checks import refusal
from busway_bus.groups.classic.member import Member, listing
from busway_bus.groups.classic.state import ClassicView
from busway_bus.groups.classic.states import TRANSITIONS, Event, State
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.records import GroupMetadataKey, GroupMetadataValue, Key
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.kernel.decision import PARKED, Decision, Unanswered, Waiter
from busway_bus.kernel.limits import PENDING_GROUP_MEMBERS_MAX, SILENT_WAIT_MS_MIN
from busway_protocol.errors import ErrorCode

R = TypeVar("R")
WRITE_AGAIN_MS: Final = 1_000
"""Delay before an empty generation is rewritten after a failed append: no member triggers it."""


class ClassicGroup(ClassicView):
    """A classic group; `on_removed` is called with each removed member."""

    def __init__(self, group_id: str, limits: GroupLimits, new_id: Callable[[str], str]) -> None:
        super().__init__(group_id, limits.memory)
        self._limits = limits
        self._new_id = new_id
        self.on_removed: Callable[[Member], None] = lambda member: None
        self._join_deadline_ms: int | None = None
        self._delay_until_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._unsynced: set[str] = set()
        self._responses: list[tuple[Waiter, JoinResult | SyncResult]] = []
        self._record: GroupMetadataValue | None = None
        self._successor: tuple[str, Member] | None = None

    def _decided(self, reply: R) -> Decision[R]:
        responses, self._responses = tuple(self._responses), []
        value, self._record = self._record, None
        records = () if value is None else ((GroupMetadataKey(group=self.group_id), value),)
        return Decision(records=records, reply=reply, responses=responses)

    # Joining

    def refusal(self, request: Join) -> ErrorCode | None:
        return refusal(
            request, state=self.state, roster=self.roster, protocol_type=self.protocol_type, limits=self._limits
        )

    def join(self, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        """Join or rejoin; no reply until a necessary rebalance ends."""
        return self._decided(self._join(request, waiter, now))

    def _join(self, request: Join, waiter: Waiter, now: int) -> JoinResult | Unanswered:
        error = self.refusal(request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.roster.pending.discard(request.member_id)
            return JoinResult(error=error)
        if error is not None:
            return JoinResult(error=error, member_id=request.member_id)
        if request.member_id == "":
            return self._join_unknown(request, waiter, now)
        if request.member_id in self.roster.pending:
            self._add(request.member_id, request, waiter, now)
            return PARKED
        return self._rejoin(self.members[request.member_id], request, waiter, now)

    def _join_unknown(self, request: Join, waiter: Waiter, now: int) -> JoinResult | Unanswered:
        member_id = self._new_id(request.called)
        if request.instance_id is not None:
            owner = self.roster.owner(request.instance_id)
            if owner is not None:
                return self._replace_static(owner, member_id, request, waiter, now)
        elif request.needs_known_id:
            if len(self.roster.pending) >= PENDING_GROUP_MEMBERS_MAX:
                return JoinResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.roster.hand_out(member_id, now + request.session_timeout_ms, request.client_host)
            return JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        self._add(member_id, request, waiter, now)
        return PARKED

    def _add(self, member_id: str, request: Join, waiter: Waiter, now: int) -> None:
        member = Member.joining(member_id, request, now)
        self.roster.add(member)
        self.roster.park_join(member, waiter)
        self.protocol_type = request.protocol_type
        if self._delay_until_ms is not None and self._join_deadline_ms is not None:
            # Members that join while a new group gathers extend the delay, up to the rebalance timeout.
            later = now + self._limits.initial_rebalance_delay_ms
            self._delay_until_ms = min(max(self._delay_until_ms, later), self._join_deadline_ms)
        self._rebalance(now)

    def _rejoin(self, member: Member, request: Join, waiter: Waiter, now: int) -> JoinResult | Unanswered:
        changed = member.protocols != request.protocols
        leads = member.member_id == self.roster.leader
        settled = self.state is State.COMPLETING or (self.state is State.STABLE and not leads)
        if settled and not changed:
            self.roster.touch(member, now)
            return self._joined(member)
        self._renew(member, request, now)
        before = self.roster.park_join(member, waiter)
        if before is not None:
            # The client has sent its join again: the earlier request is answered, so that its sender joins again.
            self._responses.append(
                (before, JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
            )
        self._rebalance(now)
        return PARKED

    def _renew(self, member: Member, request: Join, now: int) -> None:
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.host, member.from_log = request.client_host, False
        self.roster.change_protocols(member, request.protocols)
        self.roster.touch(member, now)

    def _replace_static(
        self, old_id: str, member_id: str, request: Join, waiter: Waiter, now: int
    ) -> JoinResult | Unanswered:
        """Handle a static member that rejoins without a member id (KIP-345).

        Its old id is fenced. A stable group whose chosen protocol stays the same needs no rebalance.
        """
        member = self.members[old_id]
        if self.state is State.STABLE and self.roster.vote_with(member, request.protocols) == self.protocol:
            return self._pass_on(member, member_id, request, now)
        self._turn_away(member, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self.roster.rename(old_id, member_id)
        if old_id in self._unsynced:
            self._unsynced = self._unsynced - {old_id} | {member_id}
        self._renew(member, request, now)
        self.roster.park_join(member, waiter)
        self._rebalance(now)
        return PARKED

    def _pass_on(self, member: Member, member_id: str, request: Join, now: int) -> JoinResult:
        """Write the new owner of an instance id, in force when applied."""
        owner = member.succeeded(Member.joining(member_id, request, now))
        leads = member.member_id == self.roster.leader
        members = [owner if other is member else other for other in self.roster]
        self._successor = (member.member_id, owner)
        self._record = self.record()
        self._record.leader = member_id if leads else self.roster.leader
        self._record.members = [other.record(self.protocol, other.assignment) for other in members]
        answer = JoinResult(
            member_id=member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=member_id if leads else self.roster.leader or "",
            members=listing(members, self.protocol) if leads else (),
        )
        if leads and request.can_skip_assignment:
            return replace(answer, skip_assignment=True)
        if leads:
            # An older client must not assign again, so the response names its former member id as the leader.
            return replace(answer, leader=member.member_id, members=())
        return answer

    # Syncing

    def sync(self, request: Sync, waiter: Waiter, now: int) -> Decision[SyncResult | Unanswered]:
        return self._decided(self._sync(request, waiter, now))

    def _sync(self, request: Sync, waiter: Waiter, now: int) -> SyncResult | Unanswered:
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return SyncResult(error=error)
        names = ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol))
        if any(of_member is not None and of_member != of_group for of_member, of_group in names):
            return SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = self.members[request.member_id]
        self.roster.touch(member, now)
        if self.state is State.PREPARING:
            return SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is State.STABLE:
            self._unsynced.discard(member.member_id)
            return self._synced(member.assignment)
        if not self.roster.has_room_for(request.assignments, member.host):
            return SyncResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
        if request.member_id == self.roster.leader:
            return self._assign(member, dict(request.assignments), now)
        self._unsynced.discard(member.member_id)
        if member.sync is not None:
            self._responses.append((member.sync, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync = waiter
        return PARKED

    def _assign(self, leader: Member, assignments: Mapping[str, bytes], now: int) -> SyncResult:
        """Write the generation: in force when applied, sent once durable."""
        self._record = self._generation(self.generation, assignments, now)
        for member in self.roster:
            waiter, member.sync = member.sync, None
            if waiter is not None:
                self._responses.append((waiter, self._synced(assignments.get(member.member_id, b""))))
                self.roster.touch(member, now)
        return self._synced(assignments.get(leader.member_id, b""))

    # Heartbeats and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        error = self.check_member(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.roster.touch(self.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def leave(self, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        return self._decided([self._leave(member_id, instance_id, now) for member_id, instance_id in identities])

    def _leave(self, member_id: str, instance_id: str | None, now: int) -> ErrorCode:
        if member_id in self.roster.pending:
            self.roster.pending.discard(member_id)
            self._maybe_complete(now)
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            member_id = self.roster.owner(instance_id) or ""
        error = self.roster.identity_error(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(member_id)
            self._rebalance(now)
        return error

    def dismiss(self, now: int) -> tuple[tuple[Waiter, JoinResult | SyncResult], ...]:
        """Answer pending requests with REBALANCE_IN_PROGRESS: the group is converted."""
        for member in self.roster:
            if member.parked:
                self._turn_away(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
                self.roster.touch(member, now)
        responses, self._responses = tuple(self._responses), []
        return responses

    def abandon(self) -> list[Waiter]:
        self.roster.pending.clear()
        joins = [self.roster.take_join(member) for member in self.roster]
        syncs = [member.sync for member in self.roster]
        for member in self.roster:
            member.sync = None
        return [waiter for waiter in (*joins, *syncs) if waiter is not None]

    # Time

    def next_deadline(self) -> int | None:
        timers = (
            self.roster.next_expiry(),
            self._join_deadline_ms,
            self._delay_until_ms,
            self._sync_deadline_ms if self._unsynced else None,
        )
        return min((moment for moment in timers if moment is not None), default=None)

    def tick(self, now: int) -> Decision[None]:
        expired = dict.fromkeys(self.roster.expire(now))
        if self._unsynced and self._sync_deadline_ms is not None and self._sync_deadline_ms <= now:
            expired |= dict.fromkeys(sorted(self._unsynced))
        for member_id in expired:
            self._remove(member_id)
        if expired:
            self._rebalance(now)
        if self._delay_until_ms is not None and self._delay_until_ms <= now:
            # The initial delay is over; members with a handed-out id that have not rejoined are not waited for.
            self._complete(now)
        elif self._join_deadline_ms is not None and self._join_deadline_ms <= now:
            self._complete(now)
        else:
            self._maybe_complete(now)
        return self._decided(None)

    # Transitions

    def _enter(self, event: Event, since_ms: int) -> None:
        self.state = TRANSITIONS.after(self.state, event)
        self.state_since_ms = since_ms

    def _remove(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        self._turn_away(self.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, "")
        self.on_removed(self.roster.remove(member_id))

    def _turn_away(self, member: Member, error: ErrorCode, member_id: str) -> None:
        join = self.roster.take_join(member)
        if join is not None:
            self._responses.append((join, JoinResult(error=error, member_id=member_id)))
        if member.sync is not None:
            self._responses.append((member.sync, SyncResult(error=error)))
            member.sync = None

    def _rebalance(self, now: int) -> None:
        if self.state is State.PREPARING:
            self._maybe_complete(now)
            return
        if self.state is State.COMPLETING:
            self._withdraw_assignments(now)
        timeout = self.roster.rebalance_timeout_ms
        fresh = self.state is State.EMPTY
        self._enter(Event.REBALANCE, now)
        self._sync_deadline_ms = None
        self._unsynced.clear()
        self._join_deadline_ms = now + timeout
        if not fresh:
            self._maybe_complete(now)
            return
        self._delay_until_ms = now + min(self._limits.initial_rebalance_delay_ms, timeout)
        if self._delay_until_ms <= now:
            self._complete(now)

    def _withdraw_assignments(self, now: int) -> None:
        for member in self.roster:
            member.assignment = b""
            self.roster.measure(member)
            if member.sync is not None:
                self._responses.append((member.sync, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)))
                member.sync = None
                self.roster.touch(member, now)

    def _maybe_complete(self, now: int) -> None:
        if self.state is State.PREPARING and self._delay_until_ms is None and self.roster.complete:
            self._complete(now)

    def _complete(self, now: int) -> None:
        """Complete the rebalance: remove missing dynamic members, keep static ones."""
        for member in [member for member in self.roster if member.join is None and member.instance_id is None]:
            self._remove(member.member_id)
        self._join_deadline_ms = self._delay_until_ms = None
        if not self.members:
            self.protocol = None
            self._record = self._generation(self.generation + 1, {}, now)
            self._join_deadline_ms = now + WRITE_AGAIN_MS
            return
        if not self.roster.elect():
            # Only silent static members are left; wait for them or for their sessions to expire.
            self._join_deadline_ms = now + max(self.roster.rebalance_timeout_ms, SILENT_WAIT_MS_MIN)
            return
        self.generation += 1
        self.protocol = self.roster.vote()
        self.subscribed = self.roster.subscriptions(self.protocol_type, self.protocol)
        self._enter(Event.JOINED, now)
        self._sync_deadline_ms = now + self.roster.rebalance_timeout_ms
        self._unsynced = set(self.members)
        for member in self.roster:
            waiter = self.roster.take_join(member)
            self.roster.touch(member, now)
            if waiter is not None:
                self._responses.append((waiter, self._joined(member)))

    def _joined(self, member: Member) -> JoinResult:
        leads = member.member_id == self.roster.leader
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            members=listing(self.roster, self.protocol) if leads else (),
        )

    def _synced(self, assignment: bytes) -> SyncResult:
        return SyncResult(protocol_type=self.protocol_type, protocol=self.protocol, assignment=assignment)

    # Records

    def record(self) -> GroupMetadataValue:
        assignments = {member.member_id: member.assignment for member in self.roster}
        return self._generation(self.generation, assignments, self.state_since_ms)

    def _generation(self, generation: int, assignments: Mapping[str, bytes], since_ms: int) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            current_state_timestamp=since_ms,
            members=[member.record(self.protocol, assignments.get(member.member_id, b"")) for member in self.roster],
        )

    def apply(self, key: Key, value: GroupMetadataValue | None, now: int) -> None:
        """Apply a record; None is the group's tombstone.

        Members first seen in a replay get one session timeout from `now`. A generation without a leader, written by
        `downgrade`, makes all members rejoin: a member left, and its partitions are unassigned.
        """
        if value is None:
            self.roster.pending.clear()
            self._enter(Event.DELETED, now)
            self.over = True
            return
        successor, self._successor = self._successor, None
        members_changed = self.roster.adopt(value.members, value.protocol, now, successor[1] if successor else None)
        if successor and successor[0] in self._unsynced and successor[0] not in self.members:
            self._unsynced = self._unsynced - {successor[0]} | {successor[1].member_id}
        another = members_changed or value.generation != self.generation
        self.roster.leader = value.leader
        self.generation, self.protocol_type, self.protocol = (
            value.generation,
            value.protocol_type or None,
            value.protocol,
        )
        if another:
            self.subscribed = self.roster.subscriptions(self.protocol_type, self.protocol)
        since_ms = value.current_state_timestamp
        self._enter(Event.ASSIGNED if value.members else Event.EMPTIED, since_ms if since_ms >= 0 else now)
        self._unsynced.discard(value.leader or "")
        self._join_deadline_ms = self._delay_until_ms = None
        if value.members and value.leader is None:
            self._rebalance(now)
