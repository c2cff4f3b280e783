"""Who of a share group has which partition: Kafka's simple assignor (KIP-932).

What lives here: spreading partitions over members that may share them, so that every member has about as many, and keeps what it has where
that is so. What does not: which members and partitions there are (`heartbeat`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import Final, TypeVar
from uuid import UUID

from busway_bus.groups.modern.group import Assignment

NAME: Final = "simple"
P = TypeVar("P", int, tuple[int, int])
"""A partition: its number, or the place of its topic among all and its number. Ids of topics are slow to compare."""


def assign(
    subscriptions: Mapping[str, Collection[UUID]],
    assignable: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """The assignment of every member.

    Args:
        subscriptions: the ids of the topics that each member reads, those that there are.
        assignable: the partitions of them that may be given out.
        before: what each was to have so far.
    """
    members = sorted(subscriptions)
    topics = sorted({topic for read in subscriptions.values() for topic in read})
    given: dict[str, dict[UUID, tuple[int, ...]]] = {member: {} for member in members}
    if len({frozenset(read) for read in subscriptions.values()}) == 1:
        _assign_all(members, topics, assignable, before, given)
        return {**given}
    # Each topic for itself, over those who read it.
    readers: dict[UUID, list[str]] = {topic: [] for topic in topics}
    for member in members:
        for topic in frozenset(subscriptions[member]):
            readers[topic].append(member)
    for topic in topics:
        had = {member: before[member].get(topic, ()) for member in readers[topic] if member in before}
        for member, numbers in _spread(readers[topic], sorted(assignable.get(topic, ())), had.get).items():
            if numbers:
                given[member][topic] = tuple(sorted(numbers))
    return {**given}


def _assign_all(
    members: list[str],
    topics: list[UUID],
    assignable: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
    given: dict[str, dict[UUID, tuple[int, ...]]],
) -> None:
    """All topics at once, over members who read the same."""
    places = {topic: at for at, topic in enumerate(topics)}

    def had(member: str) -> Iterable[tuple[int, int]]:
        known = sorted((places[topic], numbers) for topic, numbers in before.get(member, {}).items() if topic in places)
        return ((at, number) for at, numbers in known for number in numbers)

    wanted = [(at, number) for at, topic in enumerate(topics) for number in sorted(assignable.get(topic, ()))]
    for member, got in _spread(members, wanted, had).items():
        numbers: dict[int, list[int]] = {}
        for at, number in sorted(got):
            numbers.setdefault(at, []).append(number)
        given[member] = {topics[at]: tuple(found) for at, found in numbers.items()}


def _spread(members: list[str], wanted: list[P], had: Callable[[str], Iterable[P] | None]) -> dict[str, set[P]]:
    """What each of these members gets of these partitions; each partition goes to as many members as it takes to give all some."""
    if not wanted:
        return {}
    if len(wanted) == 1:
        return {member: set(wanted) for member in members}
    sharing = -(-len(members) // len(wanted))
    each = sharing * len(wanted) / len(members)
    quota = {member: ceil(each * (at + 1)) - ceil(each * at) for at, member in enumerate(members)}
    given: dict[str, set[P]] = {}
    holders: dict[P, set[str]] = {place: set() for place in wanted}
    for member in members:
        given[member] = set()
        for place in had(member) or ():
            # No more than its share, and no partition to more members than it takes.
            if place in holders and len(given[member]) < quota[member] and len(holders[place]) < sharing:
                given[member].add(place)
                holders[place].add(member)
    _fill(wanted, sharing, quota, given, holders)
    return given


def _fill(
    wanted: list[P],
    sharing: int,
    quota: Mapping[str, int],
    given: dict[str, set[P]],
    holders: dict[P, set[str]],
) -> None:
    """Give what is left to those who have less than their share, in turn."""
    unfilled = [member for member in given if len(given[member]) < quota[member]]
    at = 0
    for place in wanted:
        passed = 0
        while len(holders[place]) < sharing and passed < len(unfilled):
            at %= len(unfilled)
            member = unfilled[at]
            if member in holders[place]:
                at, passed = at + 1, passed + 1
                continue
            given[member].add(place)
            holders[place].add(member)
            passed = 0
            if len(given[member]) >= quota[member]:
                unfilled.pop(at)
            else:
                at += 1
