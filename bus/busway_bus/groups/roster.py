"""Who is in a classic group.

What lives here: members, those that were handed an id and have not come back with it, static members by instance id, the
leader, and what all of them together speak. What does not: states, deadlines of the group, answers (`classic`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from busway_bus.groups.classic_member import Member
from busway_bus.groups.memory import GroupMemory, HandedOut, Holding
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from busway_protocol.errors import ErrorCode


class Roster:
    """The members of one group.

    Attributes:
        members: by member id, in the order in which they came.
        pending: member id → when it lapses, in ms, for members that were only handed an id (KIP-394).
        leader: the member that assigns, None until one is elected.
    """

    def __init__(self, memory: GroupMemory, members: Iterable[Member] = (), leader: str | None = None) -> None:
        self._holding = Holding(memory)
        self.members: dict[str, Member] = {member.member_id: member for member in members}
        self.pending = HandedOut(self._holding)
        for member in self.members.values():
            self.count(member)
        self.leader = leader
        self._speakers: Counter[str] = Counter()
        for member in self.members.values():
            self._count(member, 1)
        self._static = {
            member.instance_id: member.member_id for member in self.members.values() if member.instance_id is not None
        }

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __len__(self) -> int:
        return len(self.members)

    def owner(self, instance_id: str) -> str | None:
        """The member id that a static member has now (KIP-345)."""
        return self._static.get(instance_id)

    def identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another one took its instance id."""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Take a member in."""
        assert member.member_id not in self.members, member.member_id
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        self._count(member, 1)
        self.count(member)
        if member.instance_id is not None:
            assert member.instance_id not in self._static, member.instance_id
            self._static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member:
        """Take a member out."""
        member = self.members.pop(member_id)
        self._count(member, -1)
        self._holding.change(-member.counted_bytes)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = None
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new member id; it keeps its place and the lead."""
        member = self.members[old_id]
        assert member.instance_id is not None
        self.members = {(new_id if key == old_id else key): found for key, found in self.members.items()}
        member.member_id = self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def teach(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Let a member speak other protocols from now on."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._speakers[name] += by
            if not self._speakers[name]:
                del self._speakers[name]

    def count(self, member: Member) -> None:
        """Count a member anew: what it holds has changed."""
        before, member.counted_bytes = member.counted_bytes, member.size_bytes
        self._holding.change(member.counted_bytes - before)

    def has_room(self, more_bytes: int) -> bool:
        """Whether the members may hold so much more."""
        return self._holding.fits(more_bytes)

    def elect(self) -> bool:
        """See that the leader is one that has joined; False when nobody has."""
        joined = [member.member_id for member in self if member.join is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def complete(self) -> bool:
        """Whether all have joined, those that were handed an id too."""
        return not self.pending and all(member.join is not None for member in self)

    @property
    def joining(self) -> int:
        """How many wait for the rebalance to end."""
        return sum(member.join is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long all are waited for: the longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def common_protocols(self) -> set[str]:
        """The protocols that every member speaks."""
        return {name for name, speakers in self._speakers.items() if speakers == len(self.members) > 0}

    def speak(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether one of the protocols is spoken by all; anything is when there is nobody."""
        if not self.members:
            return bool(protocols)
        return any(self._speakers[name] == len(self.members) for name, _ in protocols)

    def vote(self) -> str:
        """The protocol that most members put first among those that all of them speak."""
        common = self.common_protocols()
        assert common, "a member without a common protocol is never let in"
        votes: dict[str, int] = {}
        for member in self:
            first = next(name for name, _ in member.protocols if name in common)
            votes[first] = votes.get(first, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def listing(self, protocol: str | None) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader is told of everyone."""
        return tuple((member.member_id, member.instance_id, member.metadata(protocol)) for member in self)

    def subscriptions(self, protocol_type: str | None, protocol: str | None) -> frozenset[str] | None:
        """The topics that all of them together subscribe to; None when that cannot be told."""
        if protocol_type != PROTOCOL_TYPE:
            return None
        found: set[str] = set()
        for member in self:
            topics = subscribed_topics(member.metadata(protocol))
            if topics is None:
                return None
            found |= topics
        return frozenset(found)
