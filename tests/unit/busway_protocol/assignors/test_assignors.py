"""Assignors: known results, and what holds for any group."""

from hypothesis import given, settings
from hypothesis import strategies as st

from busway_protocol.assignors import cooperative_sticky, round_robin, sticky
from busway_protocol.assignors import range as range_assignor
from busway_protocol.assignors.subscription import Assignment, Subscription

Topics = dict[str, int]


def of(*topics: str, owned: list[tuple[str, int]] | None = None, generation: int = -1) -> Subscription:
    return Subscription(topics=topics, owned_partitions=tuple(owned or ()), generation_id=generation)


def test_range_gives_the_first_members_of_each_topic_one_more() -> None:
    """Three partitions of two topics over two members: the first has two of each, as in Java's documentation."""
    result = range_assignor.assign({"t0": 3, "t1": 3}, {"c0": of("t0", "t1"), "c1": of("t0", "t1")})
    assert result == {
        "c0": [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)],
        "c1": [("t0", 2), ("t1", 2)],
    }


def test_round_robin_deals_all_topics_in_turn() -> None:
    """The example of Java's documentation."""
    result = round_robin.assign({"t0": 3, "t1": 3}, {"c0": of("t0", "t1"), "c1": of("t0", "t1")})
    assert result == {
        "c0": [("t0", 0), ("t0", 2), ("t1", 1)],
        "c1": [("t0", 1), ("t1", 0), ("t1", 2)],
    }


def test_round_robin_skips_members_that_do_not_subscribe() -> None:
    """Unequal subscriptions, the second example of Java's documentation."""
    members = {"c0": of("t0"), "c1": of("t0", "t1"), "c2": of("t0", "t1", "t2")}
    result = round_robin.assign({"t0": 1, "t1": 2, "t2": 3}, members)
    assert result == {"c0": [("t0", 0)], "c1": [("t1", 0)], "c2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)]}


def test_static_members_keep_their_place_under_a_new_member_id() -> None:
    """Range orders by instance id, so a restarted static member gets the same partitions."""
    for ids in (("a", "z"), ("z", "a")):
        members = {
            ids[0]: Subscription(topics=("t",), group_instance_id="i1"),
            ids[1]: Subscription(topics=("t",), group_instance_id="i2"),
        }
        assert range_assignor.assign({"t": 2}, members)[ids[0]] == [("t", 0)]


def test_cooperative_withholds_what_another_still_owns() -> None:
    """A new member gets nothing in the first rebalance, and its share in the second."""
    everything = [("t", 0), ("t", 1)]
    first = cooperative_sticky.assign({"t": 2}, {"a": of("t", owned=everything, generation=1), "b": of("t")})
    assert first["b"] == []
    assert len(first["a"]) == 1
    second = cooperative_sticky.assign({"t": 2}, {"a": of("t", owned=first["a"], generation=2), "b": of("t")})
    assert second["a"] == first["a"]
    assert sorted(second["a"] + second["b"]) == everything


def test_a_claim_of_an_older_generation_loses() -> None:
    """A member that missed a rebalance does not take back what another was given since (KIP-792)."""
    result = sticky.assign(
        {"t": 2},
        {"old": of("t", owned=[("t", 0), ("t", 1)], generation=1), "new": of("t", owned=[("t", 1)], generation=2)},
    )
    assert result == {"old": [("t", 0)], "new": [("t", 1)]}


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topics, dict[str, Subscription]]:
    topics = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 6), min_size=1))
    members = draw(st.sets(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), min_size=1))
    every = [(topic, number) for topic, count in topics.items() for number in range(count)]
    generated = {}
    for member in sorted(members):
        wanted = draw(st.sets(st.sampled_from(sorted(topics)), min_size=0))
        owned = draw(st.sets(st.sampled_from(every))) if every else set()
        generated[member] = of(*sorted(wanted), owned=sorted(owned), generation=draw(st.integers(-1, 3)))
    return topics, generated


def check_complete(topics: Topics, members: dict[str, Subscription], result: Assignment) -> None:
    given_out = [partition for partitions in result.values() for partition in partitions]
    assert len(given_out) == len(set(given_out))
    wanted = {topic for member in members.values() for topic in member.topics}
    assert set(given_out) == {(topic, n) for topic in wanted for n in range(topics.get(topic, 0))}
    assert set(result) == set(members)
    for member, partitions in result.items():
        assert {topic for topic, _ in partitions} <= set(members[member].topics)


@given(groups())
@settings(max_examples=150)
def test_each_partition_has_exactly_one_owner_that_wants_it(case: tuple[Topics, dict[str, Subscription]]) -> None:
    """Range, round robin and sticky give out everything wanted, once, to subscribers."""
    topics, members = case
    for assign in (range_assignor.assign, round_robin.assign, sticky.assign):
        check_complete(topics, members, assign(topics, members))


@given(groups())
@settings(max_examples=150)
def test_sticky_is_balanced_and_deterministic(case: tuple[Topics, dict[str, Subscription]]) -> None:
    """No single move from a fuller member to one that wants the partition and has two fewer is left to make; the order in
    which members are listed does not matter."""
    topics, members = case
    result = sticky.assign(topics, members)
    for giver, partitions in result.items():
        for taker, others in result.items():
            if len(partitions) >= len(others) + 2:
                assert not {topic for topic, _ in partitions} & set(members[taker].topics), (giver, taker)
    assert sticky.assign(topics, dict(reversed(members.items()))) == result


@given(groups())
@settings(max_examples=150)
def test_sticky_keeps_a_settled_group_as_it_is(case: tuple[Topics, dict[str, Subscription]]) -> None:
    """Assigning again from one's own result moves nothing."""
    topics, members = case
    result = sticky.assign(topics, members)
    again = {m: of(*members[m].topics, owned=result[m], generation=5) for m in members}
    assert sticky.assign(topics, again) == result


@given(groups(), st.booleans())
@settings(max_examples=150)
def test_cooperative_settles(case: tuple[Topics, dict[str, Subscription]], alike: bool) -> None:
    """No rebalance gives anybody what another of the latest generation owns. Members that read the same topics have everything
    after the second; others, whose partitions can only move along chains, after a few more (as with Java's assignor)."""
    topics, members = case
    if alike:
        same = members[min(members)].topics
        members = {m: of(*same, owned=s.owned_partitions, generation=s.generation_id) for m, s in members.items()}
    result = cooperative_sticky.assign(topics, members)
    for member, partitions in result.items():
        for partition in partitions:
            claims = [(s.generation_id, m) for m, s in members.items() if partition in s.owned_partitions]
            latest = {m for generation, m in claims if generation == max(claims)[0]}
            assert latest <= {member}
    for generation in range(4, 5 if alike else 12):
        members = {m: of(*members[m].topics, owned=result[m], generation=generation) for m in members}
        result = cooperative_sticky.assign(topics, members)
    check_complete(topics, members, result)
