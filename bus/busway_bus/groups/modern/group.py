"""What groups have in common that the coordinator balances itself: consumer groups (KIP-848) and share groups (KIP-932).

What lives here: members by id with their epochs, sessions and subscriptions; the group's epoch; the target assignment with its epoch;
what the group knew of its topics. What does not: what a member asks for and how it gets from what it has to what it is to have
(`consumer_group`), who is to have what (the assignors), records (`records`).

All of it but the sessions is what the log says, and changes by the methods that `apply` of a kind calls.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, TypeVar
from uuid import UUID

from busway_bus.groups.group import Group
from busway_bus.groups.memory_quota import GroupMemory, Holding
from busway_bus.groups.names import NO_NAMES, SharedNames
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import MEMBER_BYTES, MEMBERS_PER_TICK_MAX
from busway_protocol.errors import ErrorCode, KafkaError

Assignment = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic, in their order; no topic is here without any."""
NO_PARTITIONS: Final[Assignment] = {}
PARTITION_BYTES: Final = 16
"""What one partition in an assignment takes, about."""


class ModernState(Enum):
    """The states of a group with Kafka's names.

    Empty: no members. Assigning: there is no target assignment for the group's epoch yet. Reconciling: some member is not there yet.
    Stable: every member has what it is to have. Dead: the group is deleted.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernMember:
    """A member of a group that the coordinator balances; a change makes another one.

    Attributes:
        epoch: what the member has to say with each heartbeat; 0 while it has not heard of one.
        previous_epoch: the one before, for an answer that was lost.
        topics: what it subscribes to by name.
        reconciled: whether it has what it was to have in its epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    previous_epoch: int = -1
    topics: frozenset[str] = frozenset()

    @property
    def reconciled(self) -> bool:
        """Whether it has what it was to have in its epoch."""
        return True

    @property
    def size_bytes(self) -> int:
        """What it holds beside the names of its topics, which its group holds once for all members that have the same."""
        return member_bytes(self)


def member_bytes(member: ModernMember) -> int:
    """What a member holds of all that members of every kind have, beside the names of its topics."""
    own = (member.member_id, member.instance_id or "", member.rack_id or "", member.client_id, member.client_host)
    return MEMBER_BYTES + sum(map(len, own))


M = TypeVar("M", bound=ModernMember)


def assignment_bytes(assignment: Assignment) -> int:
    """What an assignment takes, about."""
    return sum(PARTITION_BYTES * (1 + len(partitions)) for partitions in assignment.values())


class ModernGroup(Group, Generic[M]):
    """One group.

    Attributes:
        names: sets of topics' names that the group holds.
        epoch: goes up with every change of members, subscriptions or topics.
        target_epoch: the group's epoch that the target assignment is for; the group is to be balanced anew while it is lower.
        target_timestamp_ms: when that was computed.
        target: by member id, what each is to have.
        metadata_hash: of what the group knew of its topics.
        subscribed: how many members subscribe to a topic by its name.
        static: member ids by instance id.
    """

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id)
        self._holding = Holding(memory)
        self.names = SharedNames(self._holding)
        self._held: dict[str, tuple[str, int]] = {}
        """By member id, what is counted for it: a host and bytes."""
        self.epoch = 1
        self.target_epoch = 1
        self.target_timestamp_ms = 0
        self.target: dict[str, Assignment] = {}
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.subscribed: Counter[str] = Counter()
        self.static: dict[str, str] = {}
        self._unreconciled: dict[str, None] = {}
        self._session_ends: dict[str, int] = {}
        self._sessions = Deadlines()

    def __iter__(self) -> Iterator[M]:
        return iter(self.members.values())

    # What is seen of it

    @property
    def state(self) -> ModernState:
        """The state, which follows from all else."""
        if self.over:
            return ModernState.DEAD
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.target_epoch:
            return ModernState.ASSIGNING
        return ModernState.RECONCILING if self._unreconciled else ModernState.STABLE

    @property
    def state_name(self) -> str:
        """Its state as Kafka calls it."""
        return self.state.value

    @property
    def empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def reads(self, topic: str) -> bool:
        """Whether members subscribe to the topic."""
        return self.subscribed[topic] > 0 if topic in self.subscribed else False

    def static_member(self, instance_id: str | None) -> M | None:
        """The member that has a static member's place."""
        return self.members.get(self.static.get(instance_id, "")) if instance_id is not None else None

    def check_room(self, before: M | None, after: M) -> None:
        """Whether a member may hold what it brings, beside what its host holds.

        Args:
            before: the member as it is counted, None for one that is not here.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED.
        """
        had = before.topics if before is not None else NO_NAMES
        more = self.names.more_bytes(had, after.topics) + after.size_bytes
        if before is not None:
            more -= before.size_bytes
        refusal = self._holding.refusal(after.client_host, more)
        if refusal is not None:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, refusal)

    # What is written down

    def put_member(self, member: M) -> None:
        """Let a member be so from now on, one that was here or a new one."""
        before = self.members.get(member.member_id)
        if before is None or before.topics is not member.topics:
            shared = self.names.take(member.topics, member.client_host)
            member = member if shared is member.topics else replace(member, topics=shared)
            self.subscribed.update(shared)
            self._unsubscribe(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._settle(member)
        self._measure(member.member_id)

    def drop_member(self, member_id: str) -> M | None:
        """Let a member be gone; None where it was not here."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._unsubscribe(member)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        self._unreconciled.pop(member_id, None)
        self.end_session(member_id)
        self._measure(member_id)
        return member

    def _unsubscribe(self, member: M | None) -> None:
        if member is not None:
            self.names.give_back(member.topics)
            for topic in member.topics:
                others = self.subscribed.pop(topic, 0) - 1
                if others > 0:
                    self.subscribed[topic] = others

    def put_target(self, member_id: str, target: Assignment) -> None:
        """Let this be what a member is to have."""
        self.target[member_id] = target
        self._measure(member_id)

    def drop_target(self, member_id: str) -> None:
        """Let nothing be planned for a member."""
        self.target.pop(member_id, None)
        self._measure(member_id)

    def target_computed(self, epoch: int, timestamp_ms: int) -> None:
        """Let the target assignment be for this epoch of the group."""
        self.target_epoch, self.target_timestamp_ms = epoch, timestamp_ms
        for member in self.members.values():
            self._settle(member)

    def _settle(self, member: M) -> None:
        if member.reconciled and member.epoch == self.target_epoch:
            self._unreconciled.pop(member.member_id, None)
        else:
            self._unreconciled[member.member_id] = None

    def _measure(self, member_id: str) -> None:
        """Count anew what is held for a member: it has changed."""
        member, target = self.members.get(member_id), self.target.get(member_id)
        size = (member.size_bytes if member is not None else 0) + (assignment_bytes(target) if target else 0)
        now = (member.client_host if member is not None else NOBODY, size)
        self._holding.replace(self._held.pop(member_id, (NOBODY, 0)), now)
        if size:
            self._held[member_id] = now

    # Sessions

    def touch(self, member_id: str, until_ms: int) -> None:
        """A member has shown itself: its session ends at `until_ms` if it does not again."""
        self._session_ends[member_id] = until_ms
        self._sessions.put(member_id, until_ms)

    def has_session(self, member_id: str) -> bool:
        """Whether a member's session has begun."""
        return member_id in self._session_ends

    def end_session(self, member_id: str) -> None:
        """Wait for a member no longer."""
        self._session_ends.pop(member_id, None)
        self._sessions.discard(member_id)

    def next_expiry(self) -> int | None:
        """When `expired` may find somebody, in ms; None for never."""
        return self._sessions.earliest()

    def silent(self, member_id: str, now: int) -> bool:
        """Whether the session of a member is over."""
        return self._session_ends.get(member_id, now) <= now

    def expired(self, now: int) -> list[str]:
        """Members whose sessions are over, which are still in, and are told of again a while later if they stay; a bounded number of them,
        the rest is due at once."""
        found: list[str] = []
        for member_id in self._sessions.due(now, MEMBERS_PER_TICK_MAX):
            end = self._session_ends.get(member_id)
            if end is not None and end > now:
                self._sessions.put(member_id, end)
            elif end is not None:
                found.append(member_id)
                self._sessions.put(member_id, now + EXPIRE_AGAIN_MS)
        return found


EXPIRE_AGAIN_MS: Final = 1_000
"""When a member is put out again whose end could not be written."""
