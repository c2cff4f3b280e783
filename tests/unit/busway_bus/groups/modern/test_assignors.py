"""The assignors of consumer groups: whole, even, of few moves, the same for everybody, and quick."""

import time
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.groups.modern.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from busway_bus.groups.modern.group import Assignment
from busway_bus.kernel.steps import finished

TOPICS = tuple(UUID(int=number) for number in range(1, 5))


def subscriber(name: str, topics: frozenset[UUID], target: Assignment | None = None) -> Subscriber:
    return Subscriber(member_id=name, instance_id=None, topics=topics, target=target or {})


def loads(targets: dict[str, Assignment]) -> Counter[str]:
    return Counter({name: sum(map(len, target.values())) for name, target in targets.items()})


groups = st.tuples(
    st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=7),
    st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS}),
)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups, shift=st.integers(0, 6))
def test_each_partition_has_one_reader_that_subscribes(
    name: str, group: tuple[list[frozenset[UUID]], dict[UUID, int]], shift: int
) -> None:
    """Of any topics that anyone reads, also when some members are gone and topics have other sizes; in any order of the members."""
    wanted, partitions = group
    members = [subscriber(f"m{at}", topics) for at, topics in enumerate(wanted)]
    targets = finished(ASSIGNORS[name](members, partitions))
    for _ in range(2):
        assert targets == finished(ASSIGNORS[name](members[::-1], partitions))
        given_out = [
            (topic, number)
            for at, topics in enumerate(wanted)
            for topic, numbers in targets.get(f"m{at}", {}).items()
            for number in numbers
            if topic in topics
        ]
        read = {topic for member in members for topic in member.topics}
        assert sorted(given_out) == [(topic, number) for topic in sorted(read) for number in range(partitions[topic])]
        assert all(
            list(numbers) == sorted(numbers) and numbers
            for assigned in targets.values()
            for numbers in assigned.values()
        )
        partitions = {topic: max(count - shift, 0) for topic, count in partitions.items()}
        members = [subscriber(f"m{at}", topics, targets.get(f"m{at}", {})) for at, topics in enumerate(wanted)]
        targets = finished(ASSIGNORS[name](members, partitions))


@given(members=st.integers(1, 9), more=st.integers(0, 3), counts=st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_equals_have_the_same_number_and_keep_what_they_had(members: int, more: int, counts: list[int]) -> None:
    """When members come, only as much moves as they get; when they go, only what they had."""
    partitions = dict(zip(TOPICS, counts, strict=False))
    topics = frozenset(partitions)
    before = finished(assign_uniform([subscriber(f"m{at}", topics) for at in range(members)], partitions))
    assert max(loads(before).values()) - min(loads(before).values()) <= 1
    every = [subscriber(f"m{at}", topics, before.get(f"m{at}")) for at in range(members + more)]
    after = finished(assign_uniform(every, partitions))
    assert max(loads(after).values()) - min(loads(after).values()) <= 1
    kept = sum(
        len(set(numbers) & set(after[name].get(topic, ())))
        for name, assigned in before.items()
        for topic, numbers in assigned.items()
    )
    came = sum(count for name, count in loads(after).items() if name not in before)
    assert kept == sum(counts) - came
    left = finished(
        assign_uniform([subscriber(f"m{at}", topics, after[f"m{at}"]) for at in range(members)], partitions)
    )
    assert all(set(numbers) <= set(left[name][topic]) for name in left for topic, numbers in after[name].items())


def test_different_subscriptions_are_levelled() -> None:
    """A member that alone reads one topic gives the other one to those who read nothing else."""
    first, second = TOPICS[:2]
    members = [subscriber("a", frozenset({first, second})), subscriber("b", frozenset({second}))]
    partitions = {first: 4, second: 4}
    assert loads(finished(assign_uniform(members, partitions))) == {"a": 4, "b": 4}
    members = [
        subscriber("a", frozenset({first, second}), {first: (0, 1, 2, 3), second: (0, 1, 2)}),
        subscriber("b", frozenset({second}), {second: (3,)}),
    ]
    assert finished(assign_uniform(members, partitions)) == {"a": {first: (0, 1, 2, 3)}, "b": {second: (0, 1, 2, 3)}}


def test_ranges_of_several_topics_are_for_the_same_members() -> None:
    """Static members first, by their instance ids, so that topics of the same size are read together."""
    topics = frozenset(TOPICS[:2])
    members = [
        subscriber("z", topics),
        Subscriber(member_id="a", instance_id="2", topics=topics, target={}),
        Subscriber(member_id="b", instance_id="1", topics=topics, target={}),
    ]
    targets = finished(assign_range(members, dict.fromkeys(topics, 4)))
    assert [targets[name][TOPICS[0]] for name in ("b", "a", "z")] == [(0, 1), (2,), (3,)]
    assert all(assigned[TOPICS[0]] == assigned[TOPICS[1]] for assigned in targets.values())


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_ten_thousand_partitions_take_no_longer_than_others_may_wait(name: str, uneven: bool) -> None:
    """100 members, 10,000 partitions; the best of three runs, as this machine has other work."""
    partitions = dict.fromkeys(TOPICS, 2_500)
    every = frozenset(TOPICS)
    members = [subscriber(f"m{at:03}", every - {TOPICS[0]} if uneven and at % 2 else every) for at in range(100)]
    targets = finished(ASSIGNORS[name](members[1:], partitions))
    joined = [subscriber(member.member_id, member.topics, targets.get(member.member_id)) for member in members]
    took = []
    for _ in range(3):
        begin = time.process_time()
        finished(ASSIGNORS[name](joined, partitions))
        took.append(time.process_time() - begin)
    assert min(took) < 0.1
