"""Kafka's simple assignor: every member has a share, every partition has a member, and what can stay stays."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.groups.share.assignor import assign

A, B, C = (UUID(int=number) for number in range(1, 4))
MEMBERS = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6", "m7"])
TOPICS = {A: range(4), B: range(1), C: range(7)}
READS = st.frozensets(st.sampled_from([A, B, C]), min_size=1)


def test_one_member_has_all_and_two_share() -> None:
    """Each keeps half; a third one without a share of its own shares a partition."""
    alone = assign({"m1": [A]}, TOPICS, {})
    assert alone == {"m1": {A: (0, 1, 2, 3)}}
    both = assign({"m1": [A], "m2": [A]}, TOPICS, alone)
    assert both == {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}}
    assert assign({"m1": [B], "m2": [B], "m3": [B]}, TOPICS, {}) == {name: {B: (0,)} for name in ("m1", "m2", "m3")}


def test_nothing_is_given_that_may_not_be() -> None:
    """No topic without partitions that were begun, none that no member reads."""
    assert assign({"m1": [A], "m2": []}, {B: range(1)}, {"m1": {B: (0,)}}) == {"m1": {}, "m2": {}}


@given(st.dictionaries(MEMBERS, READS, min_size=1), st.dictionaries(MEMBERS, READS, min_size=1))
def test_shares_are_fair_and_complete(earlier: dict[str, frozenset[UUID]], later: dict[str, frozenset[UUID]]) -> None:
    """Whatever members come, go and read: every partition that is read has a member, no member has what it does not read, and of members that
    read the same none has more than one partition more than another."""
    before = assign(earlier, TOPICS, {})
    after = assign(later, TOPICS, before)
    assert set(after) == set(later)
    for member, assignment in after.items():
        assert set(assignment) <= later[member]
        assert all(numbers == tuple(sorted(set(numbers))) for numbers in assignment.values())
    for topic in {topic for read in later.values() for topic in read}:
        given_out = {number for assignment in after.values() for number in assignment.get(topic, ())}
        assert given_out == set(TOPICS[topic])
    if len(set(later.values())) == 1:
        counts = [sum(map(len, assignment.values())) for assignment in after.values()]
        assert max(counts) - min(counts) <= 1


@given(st.dictionaries(MEMBERS, READS, min_size=1))
def test_what_is_fair_stays(reads: dict[str, frozenset[UUID]]) -> None:
    """Assigning again changes nothing."""
    before = assign(reads, TOPICS, {})
    assert assign(reads, TOPICS, before) == before
