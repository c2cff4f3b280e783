"""Kafka's simple assignor of share groups (KIP-932).

Here: an even spread of partitions, which members may share.
Not here: its input (`heartbeat`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import Final, TypeVar
from uuid import UUID

from busway_bus.groups.modern.group import Assignment

NAME: Final = "simple"
P = TypeVar("P", int, tuple[int, int])
"""A partition index, alone or with its topic's: topic ids compare slowly."""


def assign(
    subscriptions: Mapping[str, Collection[UUID]],
    assignable: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Compute all assignments; as many partitions as possible are kept."""
    members = sorted(subscriptions)
    topics = sorted({topic for read in subscriptions.values() for topic in read})
    given: dict[str, dict[UUID, tuple[int, ...]]] = {member: {} for member in members}
    if len({frozenset(read) for read in subscriptions.values()}) == 1:
        _assign_all(members, topics, assignable, before, given)
        return {**given}
    # Each topic separately, over its subscribers.
    readers: dict[UUID, list[str]] = {topic: [] for topic in topics}
    for member in members:
        for topic in frozenset(subscriptions[member]):
            readers[topic].append(member)
    for topic in topics:
        had = {member: before[member].get(topic, ()) for member in readers[topic] if member in before}
        for member, partitions in _spread(readers[topic], sorted(assignable.get(topic, ())), had.get).items():
            if partitions:
                given[member][topic] = tuple(sorted(partitions))
    return {**given}


def _assign_all(
    members: list[str],
    topics: list[UUID],
    assignable: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
    given: dict[str, dict[UUID, tuple[int, ...]]],
) -> None:
    indexes = {topic: at for at, topic in enumerate(topics)}

    def had(member: str) -> Iterable[tuple[int, int]]:
        known = sorted(
            (indexes[topic], partition_indexes)
            for topic, partition_indexes in before.get(member, {}).items()
            if topic in indexes
        )
        return ((at, partition) for at, partition_indexes in known for partition in partition_indexes)

    wanted = [(at, partition) for at, topic in enumerate(topics) for partition in sorted(assignable.get(topic, ()))]
    for member, got in _spread(members, wanted, had).items():
        partition_indexes: dict[int, list[int]] = {}
        for at, partition in sorted(got):
            partition_indexes.setdefault(at, []).append(partition)
        given[member] = {topics[at]: tuple(partitions) for at, partitions in partition_indexes.items()}


def _spread(members: list[str], wanted: list[P], had: Callable[[str], Iterable[P] | None]) -> dict[str, set[P]]:
    """Spread partitions over members.

    Each goes to as many members as every member needs to have a partition.
    """
    if not wanted:
        return {}
    if len(wanted) == 1:
        return {member: set(wanted) for member in members}
    sharing = -(-len(members) // len(wanted))
    each = sharing * len(wanted) / len(members)
    quota = {member: ceil(each * (at + 1)) - ceil(each * at) for at, member in enumerate(members)}
    given: dict[str, set[P]] = {}
    holders: dict[P, set[str]] = {index: set() for index in wanted}
    for member in members:
        given[member] = set()
        for index in had(member) or ():
            # Not above the member's quota, and not to more members than needed.
            if index in holders and len(given[member]) < quota[member] and len(holders[index]) < sharing:
                given[member].add(index)
                holders[index].add(member)
    _fill(wanted, sharing, quota, given, holders)
    return given


def _fill(
    wanted: list[P],
    sharing: int,
    quota: Mapping[str, int],
    given: dict[str, set[P]],
    holders: dict[P, set[str]],
) -> None:
    """Assign the rest round robin to members below their quota."""
    unfilled = [member for member in given if len(given[member]) < quota[member]]
    at = 0
    for index in wanted:
        passed = 0
        while len(holders[index]) < sharing and passed < len(unfilled):
            at %= len(unfilled)
            member = unfilled[at]
            if member in holders[index]:
                at, passed = at + 1, passed + 1
                continue
            given[member].add(index)
            holders[index].add(member)
            passed = 0
            if len(given[member]) >= quota[member]:
                unfilled.pop(at)
            else:
                at += 1
