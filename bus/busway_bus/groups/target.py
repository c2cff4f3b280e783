"""Who is to have which partitions of a group that the coordinator balances: the assignors of Kafka's brokers (KIP-848).

What lives here: `uniform` and `range`, which depend on nothing but what they are given, so that every coordinator comes to the same.
What does not: when a group is balanced anew (`consumer_heartbeat`), how members get there (`reconcile`).
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.groups.modern import Assignment

MAX_ROUNDS: Final = 16
"""How often all topics are looked at to make what was kept more even; Kafka stops there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it.

    Attributes:
        topics: what it subscribes to, of what there is.
        target: what it was to have so far.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: Assignment


Partitions = Mapping[UUID, int]
"""How many partitions each topic has."""
Assignor = Callable[[Sequence[Subscriber], Partitions], dict[str, Assignment]]


def assign_range(members: Sequence[Subscriber], partitions: Partitions) -> dict[str, Assignment]:
    """Of each topic a range to each subscriber, static members by their instance ids first."""
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
    readers: dict[UUID, int] = {}
    for member in ordered:
        for topic_id in member.topics:
            readers[topic_id] = readers.get(topic_id, 0) + 1
    places = dict.fromkeys(readers, 0)
    targets: dict[str, Assignment] = {}
    for member in ordered:
        target: dict[UUID, tuple[int, ...]] = {}
        for topic_id in sorted(member.topics):
            each, more = divmod(partitions[topic_id], readers[topic_id])
            place = places[topic_id]
            places[topic_id] += 1
            start = place * each + min(place, more)
            end = start + each + (place < more)
            if start < end:
                target[topic_id] = tuple(range(start, end))
        targets[member.member_id] = target
    return targets


def assign_uniform(members: Sequence[Subscriber], partitions: Partitions) -> dict[str, Assignment]:
    """As many partitions to each as can be, and as many of those that it had."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.member_id)
    first = ordered[0].topics
    if all(member.topics == first for member in ordered):
        return _to_equals(ordered, first, partitions)
    return _Uneven(ordered, partitions).assigned()


def _to_equals(members: Sequence[Subscriber], topics: frozenset[UUID], partitions: Partitions) -> dict[str, Assignment]:
    """All subscribe to the same: a quota for each, of which it keeps what it had."""
    each, more = divmod(sum(partitions[topic_id] for topic_id in topics), len(members))
    kept: dict[str, dict[UUID, list[int]]] = {}
    wanting: list[tuple[str, int]] = []
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in topics}
    for place, member in enumerate(members):
        extra = more > 0
        quota = each + extra
        mine: dict[UUID, list[int]] = {}
        for topic_id, numbers in sorted(member.target.items()):
            if topic_id not in topics or quota == 0:
                continue
            count = partitions[topic_id]
            had = taken[topic_id]
            mine_here = [number for number in numbers if number < count and number not in had][:quota]
            if mine_here:
                had.update(mine_here)
                quota -= len(mine_here)
                mine[topic_id] = mine_here
        if quota and extra and len(members) - place > more:
            # Leaves the partition that not all can have to one of those who come after it.
            quota, extra = quota - 1, False
        if quota:
            wanting.append((member.member_id, quota))
        more -= extra
        kept[member.member_id] = mine
    free = (
        (topic_id, number)
        for topic_id in sorted(topics)
        for number in range(partitions[topic_id])
        if number not in taken[topic_id]
    )
    left = list(free)
    at = 0
    for member_id, quota in wanting:
        for topic_id, number in left[at : at + quota]:
            kept[member_id].setdefault(topic_id, []).append(number)
        at += quota
    return {member_id: _settled(mine) for member_id, mine in kept.items()}


def _settled(mine: Mapping[UUID, list[int]]) -> Assignment:
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in sorted(mine.items()) if numbers}


class _Uneven:
    """Members subscribe to different topics: each partition to the least laden subscriber, then from the most laden to the least."""

    def __init__(self, members: Sequence[Subscriber], partitions: Partitions) -> None:
        self._members = members
        self._partitions = partitions
        self._loads = [0] * len(members)
        self._readers: dict[UUID, list[int]] = {}
        for place, member in enumerate(members):
            for topic_id in member.topics:
                self._readers.setdefault(topic_id, []).append(place)
        self._owners = {topic_id: [-1] * partitions[topic_id] for topic_id in self._readers}
        self._order = sorted(self._readers, key=self._rank)

    def _rank(self, topic_id: UUID) -> tuple[float, int, UUID]:
        readers = len(self._readers[topic_id])
        return -self._partitions[topic_id] / readers, readers, topic_id

    def assigned(self) -> dict[str, Assignment]:
        """What each member is to have."""
        self._keep()
        for topic_id in self._order:
            self._give(topic_id)
        for _ in range(MAX_ROUNDS):
            moved = False
            for topic_id in self._order:
                moved |= len(self._readers[topic_id]) > 1 and self._level(topic_id)
            if not moved:
                break
        mine: list[dict[UUID, list[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            for number, owner in enumerate(owners):
                mine[owner].setdefault(topic_id, []).append(number)
        return {member.member_id: _settled(mine[place]) for place, member in enumerate(self._members)}

    def _keep(self) -> None:
        for place, member in enumerate(self._members):
            for topic_id, numbers in member.target.items():
                if topic_id not in member.topics:
                    continue
                owners = self._owners[topic_id]
                for number in numbers:
                    if number < len(owners) and owners[number] < 0:
                        owners[number] = place
                        self._loads[place] += 1

    def _give(self, topic_id: UUID) -> None:
        owners = self._owners[topic_id]
        least = [(self._loads[place], place) for place in self._readers[topic_id]]
        heapq.heapify(least)
        for number, owner in enumerate(owners):
            if owner < 0:
                load, place = least[0]
                owners[number] = place
                self._loads[place] = load + 1
                heapq.heapreplace(least, (load + 1, place))

    def _level(self, topic_id: UUID) -> bool:
        """Move partitions of one topic until its subscribers are even, as far as they have any of it; whether one was moved."""
        loads, owners = self._loads, self._owners[topic_id]
        readers = self._readers[topic_id]
        if max(loads[place] for place in readers) - min(loads[place] for place in readers) <= 1:
            return False
        held: dict[int, list[int]] = {}
        for number, owner in enumerate(owners):
            held.setdefault(owner, []).append(number)
        most = [(-loads[place], place) for place in held]
        least = [(loads[place], place) for place in readers]
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
"""By the names that clients and `group.consumer.assignors` use."""
