"""The base of consumer groups (KIP-848) and share groups (KIP-932).

Here: members with epochs, sessions and subscriptions; the group's epoch, target assignment and metadata hash.
Not here: heartbeats (`consumer_group`), assignors, records (`records`). All except sessions changes only by a
subclass's `apply`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, TypeVar
from uuid import UUID

from busway_bus.groups.group import Group
from busway_bus.groups.memory_quota import GroupMemory, QuotaUsage
from busway_bus.groups.names import NO_NAMES, SharedNames
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import MEMBER_BYTES, MEMBERS_PER_TICK_MAX
from busway_protocol.errors import ErrorCode, KafkaError

Assignment = Mapping[UUID, tuple[int, ...]]
"""Ordered partitions by topic id, without empty topics."""
NO_PARTITIONS: Final[Assignment] = {}
PARTITION_BYTES: Final = 16
"""Approximate memory of one partition in an assignment."""


class ModernState(Enum):
    """The states of a group with Kafka's names.

    Assigning: the epoch has no target assignment yet. Reconciling: a member differs from its target. Stable: none does.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernMember:
    """An immutable member of a consumer or share group.

    Attributes:
        epoch: of its heartbeats; 0 before the first.
        previous_epoch: also accepted, after a lost response.
        topics: subscribed to by name.
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
        """Whether it has its epoch's target assignment."""
        return True

    @property
    def size_bytes(self) -> int:
        """Memory without topic names, which equal subscriptions share."""
        return member_bytes(self)


def member_bytes(member: ModernMember) -> int:
    own = (member.member_id, member.instance_id or "", member.rack_id or "", member.client_id, member.client_host)
    return MEMBER_BYTES + sum(map(len, own))


M = TypeVar("M", bound=ModernMember)


def assignment_bytes(assignment: Assignment) -> int:
    return sum(PARTITION_BYTES * (1 + len(partitions)) for partitions in assignment.values())


class ModernGroup(Group, Generic[M]):
    """A group whose members have epochs.

    Attributes:
        epoch: rises with every change of members, subscriptions or topics.
        target_epoch: while lower than `epoch`, a new target assignment is due.
        target_timestamp_ms: of its computation.
        metadata_hash: of its topics.
        subscribed: number of subscribers of a topic by name.
        static: member ids by instance id.
    """

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id)
        self._usage = QuotaUsage(memory)
        self.names = SharedNames(self._usage)
        self._held: dict[str, tuple[str, int]] = {}
        """Accounted host and bytes by member id."""
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

    # Views

    @property
    def state(self) -> ModernState:
        if self.over:
            return ModernState.DEAD
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.target_epoch:
            return ModernState.ASSIGNING
        return ModernState.RECONCILING if self._unreconciled else ModernState.STABLE

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def empty(self) -> bool:
        return not self.members

    def reads(self, topic: str) -> bool:
        return self.subscribed[topic] > 0 if topic in self.subscribed else False

    def static_member(self, instance_id: str | None) -> M | None:
        return self.members.get(self.static.get(instance_id, "")) if instance_id is not None else None

    def check_room(self, before: M | None, after: M) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the member's host has no memory for it.

        `before`: the charged member, None for a new one.
        """
        had = before.topics if before is not None else NO_NAMES
        more = self.names.more_bytes(had, after.topics) + after.size_bytes
        if before is not None:
            more -= before.size_bytes
        refusal = self._usage.refusal(after.client_host, more)
        if refusal is not None:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, refusal)

    # Records

    def put_member(self, member: M) -> None:
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
        self.target[member_id] = target
        self._measure(member_id)

    def drop_target(self, member_id: str) -> None:
        self.target.pop(member_id, None)
        self._measure(member_id)

    def target_computed(self, epoch: int, timestamp_ms: int) -> None:
        self.target_epoch, self.target_timestamp_ms = epoch, timestamp_ms
        for member in self.members.values():
            self._settle(member)

    def _settle(self, member: M) -> None:
        if member.reconciled and member.epoch == self.target_epoch:
            self._unreconciled.pop(member.member_id, None)
        else:
            self._unreconciled[member.member_id] = None

    def _measure(self, member_id: str) -> None:
        member, target = self.members.get(member_id), self.target.get(member_id)
        size = (member.size_bytes if member is not None else 0) + (assignment_bytes(target) if target else 0)
        now = (member.client_host if member is not None else NOBODY, size)
        self._usage.replace(self._held.pop(member_id, (NOBODY, 0)), now)
        if size:
            self._held[member_id] = now

    # Sessions

    def touch(self, member_id: str, until_ms: int) -> None:
        self._session_ends[member_id] = until_ms
        self._sessions.put(member_id, until_ms)

    def has_session(self, member_id: str) -> bool:
        return member_id in self._session_ends

    def end_session(self, member_id: str) -> None:
        self._session_ends.pop(member_id, None)
        self._sessions.discard(member_id)

    def next_expiry(self) -> int | None:
        return self._sessions.earliest()

    def silent(self, member_id: str, now: int) -> bool:
        return self._session_ends.get(member_id, now) <= now

    def expired(self, now: int) -> list[str]:
        """Return a bounded number of members whose session expired.

        The rest is due at once. A member still present is returned again after `EXPIRE_AGAIN_MS`.
        """
        expired: list[str] = []
        for member_id in self._sessions.due(now, MEMBERS_PER_TICK_MAX):
            end = self._session_ends.get(member_id)
            if end is not None and end > now:
                self._sessions.put(member_id, end)
            elif end is not None:
                expired.append(member_id)
                self._sessions.put(member_id, now + EXPIRE_AGAIN_MS)
        return expired


EXPIRE_AGAIN_MS: Final = 1_000
"""Delay of a retry after a failed append."""
