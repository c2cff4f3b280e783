"""The assignors of Kafka's brokers (KIP-848).

Here: `uniform` and `range`, computed in steps from their arguments alone.
Not here: reconciliation (`reconcile`). Memory grows with members, partitions and different subscriptions, not with the
topics of all members.
"""

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.groups.modern.group import Assignment
from busway_bus.kernel.limits import ASSIGNED_PER_STEP_MAX
from busway_bus.kernel.steps import Pace

MAX_ROUNDS: Final = 16
"""Rounds over all topics that level the kept assignment, as in Kafka."""
NO_TOPICS: Final[frozenset[UUID]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as input of an assignor.

    Attributes:
        topics: existing topics subscribed to by name only.
        matched: existing topics that its regular expression matches.
        target: its last target assignment.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    matched: frozenset[UUID] = NO_TOPICS
    target: Assignment

    def __len__(self) -> int:
        return len(self.topics) + len(self.matched)

    def __iter__(self) -> Iterator[UUID]:
        yield from self.topics
        yield from self.matched

    def reads(self, topic_id: UUID) -> bool:
        return topic_id in self.topics or topic_id in self.matched

    def like(self, other: "Subscriber") -> bool:
        if self.topics == other.topics and self.matched == other.matched:
            return True
        return len(self) == len(other) and all(map(other.reads, self))


Partitions = Mapping[UUID, int]
Assigning = Generator[None, None, dict[str, Assignment]]
"""A computation in steps; its result is an assignment by member id."""
Assignor = Callable[[Sequence[Subscriber], Partitions], Assigning]


def assign_range(members: Sequence[Subscriber], partitions: Partitions) -> Assigning:
    """Assign a range of each topic's partitions; static members first, by instance id."""
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
    pace = Pace(ASSIGNED_PER_STEP_MAX)
    readers: dict[UUID, int] = {}
    for member in ordered:
        for topic_id in member:
            readers[topic_id] = readers.get(topic_id, 0) + 1
        if pace.over(1 + len(member)):
            yield
    indexes = dict.fromkeys(readers, 0)
    targets: dict[str, Assignment] = {}
    for member in ordered:
        target: dict[UUID, tuple[int, ...]] = {}
        for topic_id in member:
            each, more = divmod(partitions[topic_id], readers[topic_id])
            index = indexes[topic_id]
            indexes[topic_id] += 1
            start = index * each + min(index, more)
            end = start + each + (index < more)
            if start < end:
                target[topic_id] = tuple(range(start, end))
        targets[member.member_id] = target
        if pace.over(1 + len(member)):
            yield
    return targets


def assign_uniform(members: Sequence[Subscriber], partitions: Partitions) -> Assigning:
    """Assign equal numbers of partitions; keep as many as possible."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.member_id)
    pace = Pace(ASSIGNED_PER_STEP_MAX)
    for member in ordered:
        if not member.like(ordered[0]):
            return (yield from _Uneven(ordered, partitions).assigned())
        if pace.over(1 + len(member)):
            yield
    return (yield from _to_equals(ordered, tuple(ordered[0]), partitions))


def _to_equals(members: Sequence[Subscriber], topics: Sequence[UUID], partitions: Partitions) -> Assigning:
    """Assign by quota among members with equal subscriptions."""
    pace = Pace(ASSIGNED_PER_STEP_MAX)
    each, more = divmod(sum(partitions[topic_id] for topic_id in topics), len(members))
    kept: dict[str, dict[UUID, list[int]]] = {}
    wanting: list[tuple[str, int]] = []
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in topics}
    for index, member in enumerate(members):
        extra = more > 0
        quota = each + extra
        own_partitions: dict[UUID, list[int]] = {}
        for topic_id, partition_indexes in sorted(member.target.items()):
            if topic_id not in taken or quota == 0:
                continue
            count = partitions[topic_id]
            had = taken[topic_id]
            own_numbers = [partition for partition in partition_indexes if partition < count and partition not in had][
                :quota
            ]
            if own_numbers:
                had.update(own_numbers)
                quota -= len(own_numbers)
                own_partitions[topic_id] = own_numbers
        if quota and extra and len(members) - index > more:
            # Leave one of the surplus partitions to a later member.
            quota, extra = quota - 1, False
        if quota:
            wanting.append((member.member_id, quota))
        more -= extra
        kept[member.member_id] = own_partitions
        if pace.over(1 + len(member.target) + each):
            yield
    left: list[tuple[UUID, int]] = []
    for topic_id in sorted(topics):
        had = taken[topic_id]
        left += [(topic_id, partition) for partition in range(partitions[topic_id]) if partition not in had]
        if pace.over(1 + partitions[topic_id]):
            yield
    at = 0
    for member_id, quota in wanting:
        for topic_id, partition in left[at : at + quota]:
            kept[member_id].setdefault(topic_id, []).append(partition)
        at += quota
        if pace.over(1 + quota):
            yield
    return (yield from _settled(kept, pace))


def _settled(kept: Mapping[str, Mapping[UUID, list[int]]], pace: Pace) -> Assigning:
    settled: dict[str, Assignment] = {}
    for member_id, own_partitions in kept.items():
        settled[member_id] = {
            topic_id: tuple(sorted(partitions)) for topic_id, partitions in sorted(own_partitions.items()) if partitions
        }
        if pace.over(1 + sum(map(len, own_partitions.values()))):
            yield
    return settled


class _Uneven:
    """An assignment to members with different subscriptions.

    Each partition goes to its least loaded subscriber, then the loads are leveled.
    """

    def __init__(self, members: Sequence[Subscriber], partitions: Partitions) -> None:
        self._members = members
        self._partitions = partitions
        self._pace = Pace(ASSIGNED_PER_STEP_MAX)
        self._loads = [0] * len(members)
        self._units: dict[UUID, list[list[int]]] = {}
        """Positions of a topic's subscribers by equal subscription, without overlap."""
        self._owners: dict[UUID, list[int]] = {}
        self._order: list[UUID] = []

    def assigned(self) -> Assigning:
        yield from self._prepare()
        yield from self._keep()
        for topic_id in self._order:
            if self._pace.over(self._give(topic_id)):
                yield
        for _ in range(MAX_ROUNDS):
            moved = False
            for topic_id in self._order:
                moved |= self._level(topic_id)
                if self._pace.over(self._size(topic_id) + self._partitions[topic_id]):
                    yield
            if not moved:
                break
        own_partitions: list[dict[UUID, list[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                own_partitions[owner].setdefault(topic_id, []).append(partition)
            if self._pace.over(1 + len(owners)):
                yield
        kept = {member.member_id: own_partitions[index] for index, member in enumerate(self._members)}
        return (yield from _settled(kept, self._pace))

    def _prepare(self) -> Generator[None, None, None]:
        alike: dict[frozenset[UUID], list[int]] = {}
        for index, member in enumerate(self._members):
            for topics in (member.topics, member.matched):
                if topics:
                    alike.setdefault(topics, []).append(index)
            if self._pace.over(1):
                yield
        for topics, indexes in alike.items():
            for topic_id in topics:
                self._units.setdefault(topic_id, []).append(indexes)
            if self._pace.over(1 + len(topics)):
                yield
        self._owners = {topic_id: [-1] * self._partitions[topic_id] for topic_id in self._units}
        yield
        self._order = sorted(self._units, key=self._rank)
        yield

    def _rank(self, topic_id: UUID) -> tuple[float, int, UUID]:
        readers = self._size(topic_id)
        return -self._partitions[topic_id] / readers, readers, topic_id

    def _size(self, topic_id: UUID) -> int:
        return sum(map(len, self._units[topic_id]))

    def _readers(self, topic_id: UUID) -> list[int]:
        units = self._units[topic_id]
        return units[0] if len(units) == 1 else [index for unit in units for index in unit]

    def _keep(self) -> Generator[None, None, None]:
        for index, member in enumerate(self._members):
            for topic_id, partitions in member.target.items():
                if not member.reads(topic_id):
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] < 0:
                        owners[partition] = index
                        self._loads[index] += 1
                if self._pace.over(1 + len(partitions)):
                    yield

    def _give(self, topic_id: UUID) -> int:
        """Assign a topic's unowned partitions; return the amount of work."""
        owners = self._owners[topic_id]
        if -1 not in owners:
            return 1
        least = [(self._loads[index], index) for index in self._readers(topic_id)]
        heapq.heapify(least)
        for partition, owner in enumerate(owners):
            if owner < 0:
                load, index = least[0]
                owners[partition] = index
                self._loads[index] = load + 1
                heapq.heapreplace(least, (load + 1, index))
        return len(least) + len(owners)

    def _level(self, topic_id: UUID) -> bool:
        """Level the loads of a topic's subscribers; True if a partition moved."""
        loads, owners = self._loads, self._owners[topic_id]
        readers = self._readers(topic_id)
        if len(readers) == 1:
            return False
        if max(loads[index] for index in readers) - min(loads[index] for index in readers) <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)
        most = [(-loads[index], index) for index in held]
        least = [(loads[index], index) for index in readers]
        heapq.heapify(most)
        heapq.heapify(least)
        moved = False
        while most:
            load, giver = most[0]
            if -load != loads[giver] or not held[giver]:
                heapq.heappop(most)
                continue
            while least[0][0] != loads[least[0][1]]:
                heapq.heapreplace(least, (loads[least[0][1]], least[0][1]))
            taker = least[0][1]
            if loads[giver] - loads[taker] <= 1:
                break
            owners[held[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            heapq.heapreplace(most, (-loads[giver], giver))
            moved = True
        return moved


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors by their name in clients and `group.consumer.assignors`."""
