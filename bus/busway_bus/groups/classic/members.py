"""The members of a classic group.

Here: sessions, handed-out ids, static members, the leader, common protocols.
Not here: states, deadlines, replies (`group`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from busway_bus.groups.classic.member import Member
from busway_bus.groups.memory_quota import GroupMemory, HandedOut, QuotaUsage
from busway_bus.groups.names import names_bytes
from busway_bus.groups.records import MemberMetadata
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import Waiter
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import SUBSCRIBED_ELEMENTS_MAX
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from busway_protocol.errors import ErrorCode, MalformedMessage


class Roster:
    """The members of one group.

    Attributes:
        members: by id, in joining order.
        pending: handed-out member id → expiry in ms (KIP-394).
        joining: number of members with a pending join.
    """

    def __init__(self, memory: GroupMemory) -> None:
        self._usage = QuotaUsage(memory)
        self.members: dict[str, Member] = {}
        self.pending = HandedOut(self._usage)
        self.leader: str | None = None
        self.joining = 0
        self._by_protocol: Counter[str] = Counter()
        self._static: dict[str, str] = {}
        self._sessions = Deadlines()
        self._names_bytes = 0

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __len__(self) -> int:
        return len(self.members)

    def owner(self, instance_id: str | None) -> str | None:
        """Return a static member's current id (KIP-345)."""
        return None if instance_id is None else self._static.get(instance_id)

    def identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a replaced static member."""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, member.member_id
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.measure(member)
        self._sessions.put(member.member_id, member.deadline_ms)
        if member.instance_id is not None:
            assert member.instance_id not in self._static, member.instance_id
            self._static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        assert not member.parked, member_id
        self._count_protocols(member, -1)
        self._usage.replace(member.counted, (member.host, 0))
        self._sessions.discard(member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = None
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Replace a static member's id; it keeps its position and leadership."""
        member = self.members[old_id]
        assert member.instance_id is not None
        self.members = {(new_id if key == old_id else key): value for key, value in self.members.items()}
        member.member_id = self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._sessions.discard(old_id)
        self._sessions.put(new_id, member.deadline_ms)
        return member

    # Sessions

    def hand_out(self, member_id: str, until_ms: int, host: str) -> None:
        self.pending.hand_out(member_id, until_ms, host)
        self._sessions.put(member_id, until_ms)

    def touch(self, member: Member, now: int) -> None:
        member.deadline_ms = now + member.session_timeout_ms
        self._sessions.put(member.member_id, member.deadline_ms)

    def next_expiry(self) -> int | None:
        return self._sessions.earliest()

    def expire(self, now: int) -> list[str]:
        expired: list[str] = []
        for member_id in self._sessions.due(now):
            member = self.members.get(member_id)
            if member is None:
                self.pending.discard(member_id)
            elif member.parked:
                continue  # its pending request shows that it is alive; the session restarts with the response
            elif member.deadline_ms <= now:
                expired.append(member_id)
            else:
                self._sessions.put(member_id, member.deadline_ms)
        return expired

    # Joining

    def adopt(
        self, written: Sequence[MemberMetadata], protocol: str | None, now: int, successor: Member | None = None
    ) -> bool:
        """Replay a record's members; True if some were added or removed. Known ones keep what is not in the record.

        Args:
            now: session start of new members.
            successor: a member that is known, but not added yet.
        """
        member_ids = {metadata.member_id for metadata in written}
        gone = [member_id for member_id in self.members if member_id not in member_ids]
        for member_id in gone:
            self.remove(member_id)
        came = [metadata for metadata in written if metadata.member_id not in self.members]
        for metadata in came:
            comes = successor is not None and metadata.member_id == successor.member_id
            self.add(successor if comes and successor else Member.restored(metadata, protocol, now))
        for metadata in written:
            member = self.members[metadata.member_id]
            if member.from_log:
                known = Member.restored(metadata, protocol, now)
                member.session_timeout_ms = known.session_timeout_ms
                member.rebalance_timeout_ms = known.rebalance_timeout_ms
                self.change_protocols(member, known.protocols)
            member.assignment = metadata.assignment
            self.measure(member)
        if came:
            self.members = {metadata.member_id: self.members[metadata.member_id] for metadata in written}
        return bool(gone or came)

    def park_join(self, member: Member, waiter: Waiter) -> Waiter | None:
        """Park a join until the rebalance ends; return the previous join's waiter."""
        before, member.join = member.join, waiter
        self.joining += before is None
        return before

    def take_join(self, member: Member) -> Waiter | None:
        waiter, member.join = member.join, None
        self.joining -= waiter is not None
        return waiter

    def change_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        self.measure(member)

    def _count_protocols(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._by_protocol[name] += by
            if not self._by_protocol[name]:
                del self._by_protocol[name]

    def measure(self, member: Member) -> None:
        before, member.counted = member.counted, (member.host, member.size_bytes)
        self._usage.replace(before, member.counted)

    # Group-wide

    def memory_without(self) -> GroupMemory:
        return self._usage.without()

    @property
    def held_bytes(self) -> int:
        return self._usage.held

    def has_room(self, host: str, more_bytes: int) -> bool:
        return self._usage.fits({host: more_bytes})

    def has_room_for(self, assignments: Sequence[tuple[str, bytes]], host: str) -> bool:
        """Check that each member may hold its assignment. An unknown one is charged to the sender's host."""
        more: Counter[str] = Counter()
        for member_id, assignment in assignments:
            member = self.members.get(member_id)
            more[host if member is None else member.host] += len(assignment)
        return self._usage.fits(more)

    def elect(self) -> bool:
        """Ensure that the leader has joined; False if no member has."""
        joined = [member.member_id for member in self if member.join is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def complete(self) -> bool:
        """Whether all members have joined, and no handed-out id is unused."""
        return not self.pending and self.joining == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def common_protocols(self) -> set[str]:
        return {name for name, count in self._by_protocol.items() if count == len(self.members) > 0}

    def speak(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        if not self.members:
            return bool(protocols)
        return any(self._by_protocol[name] == len(self.members) for name, _ in protocols)

    def vote(self) -> str:
        common = self.common_protocols()
        assert common, "a member without a common protocol is never let in"
        votes: dict[str, int] = {}
        for member in self:
            first = next(name for name, _ in member.protocols if name in common)
            votes[first] = votes.get(first, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def vote_with(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> str:
        """Return the vote's outcome if this member had other protocols."""
        before = member.protocols
        self.change_protocols(member, protocols)
        outcome = self.vote()
        self.change_protocols(member, before)
        return outcome

    def subscriptions(self, protocol_type: str | None, protocol: str | None) -> frozenset[str] | None:
        """Return all members' topics; None if undecodable or too many.

        They replace the previous ones in the accounted memory.
        """
        topics = self._read(protocol) if protocol_type == PROTOCOL_TYPE else None
        self._usage.change(NOBODY, -self._names_bytes)
        self._names_bytes = 0 if topics is None else names_bytes(topics)
        if topics is not None and not self.has_room(NOBODY, self._names_bytes):
            topics, self._names_bytes = None, 0
        self._usage.change(NOBODY, self._names_bytes)
        return topics

    def _read(self, protocol: str | None) -> frozenset[str] | None:
        subscribed: set[str] = set()
        elements = 0
        for metadata in {member.metadata(protocol) for member in self}:
            try:
                subscription = decode_subscription(metadata, bounded=True)
            except MalformedMessage:
                return None  # the group may use a protocol of its own
            elements += len(subscription.topics) + len(subscription.owned_partitions)
            if elements > SUBSCRIBED_ELEMENTS_MAX:
                return None
            subscribed.update(subscription.topics)
        return frozenset(subscribed)
