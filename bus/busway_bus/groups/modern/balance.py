"""The computation of a consumer group's target assignment in steps.

Here: the assignors' input, a running plan.
Not here: when it is due, storing it (`consumer_target`).
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
"""Resolved names by regular expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A target assignment, computed from a group's state at one moment.

    Attributes:
        group: not a later one of the same name.
        epoch, instances: the group's epoch and instance ids then.
    """

    group: Any
    epoch: int
    steps: Assigning
    instances: Mapping[str, str]

    @staticmethod
    def parts(targets: Mapping[str, Assignment]) -> Iterator[tuple[dict[str, Assignment], bool]]:
        """Yield parts to be written at once; the flag marks the last."""
        pace, part = Pace(TARGETS_WRITTEN_AT_ONCE_MAX), dict[str, Assignment]()
        for member_id, target in targets.items():
            part[member_id] = target
            if pace.over(1 + len(target) + sum(map(len, target.values()))):
                yield part, False
                part = {}
        yield part, True


def is_small(members: Iterable[ConsumerMember], matches: Matches, topics: Topics, at_once: int) -> bool:
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
    """Compute the target assignment in steps.

    The mappings must not change meanwhile; topics may. `had`: last target assignments.
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
    """Return the assignor's input, from one image; fill `partitions`."""
    pace = Pace(ASSIGNED_PER_STEP_MAX)
    topics = topics.as_they_are()
    sets: dict[frozenset[str], frozenset[UUID]] = {}
    both: dict[tuple[frozenset[str], frozenset[str]], frozenset[UUID]] = {}

    def look_up(names: frozenset[str]) -> Generator[None, None, frozenset[UUID]]:
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
