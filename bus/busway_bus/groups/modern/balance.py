"""Balancing a consumer group a step at a time: from its members as they are at one moment to what each is to have.

What lives here: what the assignors are given, how much work a group is, and a plan that is carried out while the group goes on. What does
not: the assignors (`assignors`), when a group is balanced and what becomes of a plan's outcome (`consumer_target`).
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from busway_bus.groups.modern.assignors import ASSIGNORS, NO_TOPICS, Assigning, Subscriber
from busway_bus.groups.modern.consumer_member import ConsumerMember
from busway_bus.groups.modern.group import NO_PARTITIONS, Assignment
from busway_bus.groups.modern.topics import Topics
from busway_bus.kernel.limits import ASSIGNED_PER_STEP_MAX, TARGETS_WRITTEN_AT_ONCE_MAX
from busway_bus.kernel.steps import Pace

Matches = Mapping[str, frozenset[str]]
"""The names that each regular expression matches, as far as that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A group that is being balanced, as it was at one moment.

    Attributes:
        group: whose plan it is; another one of the same name has nothing to do with it.
        epoch: the group's, at that moment.
        steps: end with what each member is to have.
        instances: who was a static member then, by member id.
    """

    group: Any
    epoch: int
    steps: Assigning
    instances: Mapping[str, str]

    @staticmethod
    def parts(targets: Mapping[str, Assignment]) -> Iterator[tuple[dict[str, Assignment], bool]]:
        """What the members are to have in parts that are written at once, each with whether it is the last."""
        pace, part = Pace(TARGETS_WRITTEN_AT_ONCE_MAX), dict[str, Assignment]()
        for member_id, target in targets.items():
            part[member_id] = target
            if pace.over(1 + len(target) + sum(map(len, target.values()))):
                yield part, False
                part = {}
        yield part, True


def is_small(members: Iterable[ConsumerMember], matches: Matches, topics: Topics, at_once: int) -> bool:
    """Whether it takes no more than so many topics of members, and partitions, to balance them."""
    left = at_once
    sets: set[frozenset[str]] = set()
    for member in members:
        matched = matches.get(member.regex or "", frozenset())
        left -= 1 + len(member.topics) + len(matched)
        if left < 0:
            return False
        sets |= {member.topics, matched}
    return sum(len(topic.partitions) for topic in topics.each(frozenset().union(*sets))) <= left


def assigning(
    assignor: str,
    members: Mapping[str, ConsumerMember],
    had: Mapping[str, Assignment],
    matches: Matches,
    topics: Topics,
) -> Assigning:
    """Steps to what each of these members is to have, none of which may change meanwhile; topics may.

    Args:
        had: what each was to have before.
    """
    partitions: dict[UUID, int] = {}
    subscribers = yield from _subscribers(members, had, matches, topics, partitions)
    return (yield from ASSIGNORS[assignor](subscribers, partitions))


def _subscribers(
    members: Mapping[str, ConsumerMember],
    had: Mapping[str, Assignment],
    matches: Matches,
    topics: Topics,
    partitions: dict[UUID, int],
) -> Generator[None, None, list[Subscriber]]:
    """The members as an assignor sees them, all of them the same topics; puts how many partitions those have into `partitions`."""
    pace = Pace(ASSIGNED_PER_STEP_MAX)
    topics = topics.as_they_are()
    sets: dict[frozenset[str], frozenset[UUID]] = {}
    both: dict[tuple[frozenset[str], frozenset[str]], frozenset[UUID]] = {}

    def look_up(names: frozenset[str]) -> Generator[None, None, frozenset[UUID]]:
        """The ids of those of the names that there are."""
        ids = set()
        for topic in topics.each(names):
            ids.add(topic.topic_id)
            partitions[topic.topic_id] = len(topic.partitions)
            if pace.over(2):
                yield
        return frozenset(ids)

    subscribers = []
    for member_id, member in sorted(members.items()):
        matched = matches.get(member.regex or "", frozenset())
        for names in (member.topics, matched):
            if names not in sets:
                sets[names] = yield from look_up(names)
        pair = member.topics, matched
        if pair not in both:
            both[pair] = sets[member.topics] - sets[matched]
        subscriber = Subscriber(
            member_id=member_id,
            instance_id=member.instance_id,
            topics=both[pair],
            matched=sets[matched] if matched else NO_TOPICS,
            target=had.get(member_id, NO_PARTITIONS),
        )
        subscribers.append(subscriber)
        if pace.over(1):
            yield
    return subscribers
