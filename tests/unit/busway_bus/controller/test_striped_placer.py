"""The choice of brokers for partitions: the same as Kafka's StripedReplicaPlacer makes from the same random numbers."""

from collections import Counter
from collections.abc import Callable, Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.controller.striped_placer import StripedPlacer, UsableBroker, draws_from
from busway_protocol.errors import ErrorCode, KafkaError


def kafkas_numbers() -> Callable[[int], int]:
    """The numbers of Kafka's `MockRandom`, drawn as by Java's `Random.nextInt`."""
    state = 17

    def bits() -> int:
        nonlocal state
        state = (state * 2_862_933_555_777_941_757 + 3_037_000_493) % (1 << 64)
        drawn = state >> 33
        return drawn - (1 << 32) if drawn >= 1 << 31 else drawn

    def below(bound: int) -> int:
        if bound & -bound == bound:
            return (bound * bits()) >> 31
        while True:
            drawn = bits()
            value = drawn % bound
            if drawn - value + bound - 1 < 1 << 31:
                return value

    return below


def placer(*brokers: tuple[int, str | None, bool]) -> StripedPlacer:
    """One for these brokers: id, rack, whether it is fenced."""
    return StripedPlacer((UsableBroker(*broker) for broker in brokers), kafkas_numbers())


def test_a_fenced_broker_is_avoided() -> None:
    """There are enough others; StripedReplicaPlacerTest.testAvoidFencedReplicaIfPossibleOnSingleRack."""
    place = placer((3, None, False), (1, None, True), (0, None, False), (4, None, False), (2, None, False)).place
    assert [place(4) for _ in range(5)] == [(3, 4, 0, 2), (4, 0, 2, 3), (0, 2, 3, 4), (2, 3, 4, 0), (0, 4, 3, 2)]


def test_the_only_unfenced_broker_has_every_partition() -> None:
    """testMultiPartitionTopicPlacementOnSingleUnfencedBroker."""
    place = placer((0, None, False), (1, None, True)).place
    assert [place(1) for _ in range(3)] == [(0,)] * 3


def test_a_fenced_broker_is_taken_if_it_is_needed() -> None:
    """As the last replica; testPlacementOnFencedReplicaOnSingleRack."""
    place = placer((3, None, False), (1, None, True), (2, None, False)).place
    assert [place(3) for _ in range(4)] == [(3, 2, 1), (2, 3, 1), (3, 2, 1), (2, 3, 1)]


def test_replicas_are_spread_over_racks() -> None:
    """testRackListWithMultipleRacks."""
    place = placer(
        (11, "1", False), (10, "1", False), (30, "3", False), (31, "3", False), (21, "2", False), (20, "2", True)
    ).place
    assert [place(4) for _ in range(3)] == [(11, 21, 31, 10), (21, 30, 10, 20), (31, 11, 21, 30)]


def test_a_rack_without_unfenced_brokers_leads_nothing() -> None:
    """testRackListWithInvalidRacks."""
    place = placer(
        (11, "1", False),
        (10, "1", False),
        (30, "3", True),
        (31, "3", True),
        (20, "2", True),
        (21, "2", True),
        (41, "4", False),
        (40, "4", True),
    ).place
    assert [place(4) for _ in range(3)] == [(41, 11, 21, 30), (10, 20, 31, 41), (41, 21, 30, 11)]


def test_the_pattern_is_striped() -> None:
    """Then the order changes; testSuccessfulPlacement."""
    place = placer(*((node_id, None, False) for node_id in (0, 3, 2, 1))).place
    assert [place(3) for _ in range(5)] == [(2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 2, 3), (1, 0, 2)]


def test_every_set_of_replicas_occurs() -> None:
    """testEvenDistribution, with the counts of Kafka's test."""
    place = placer(*((node_id, None, False) for node_id in range(4))).place
    assert Counter(place(2) for _ in range(200)) == {
        (0, 1): 14,
        (0, 2): 22,
        (0, 3): 14,
        (1, 0): 17,
        (1, 2): 17,
        (1, 3): 16,
        (2, 0): 13,
        (2, 1): 17,
        (2, 3): 20,
        (3, 0): 20,
        (3, 1): 19,
        (3, 2): 11,
    }


@pytest.mark.parametrize(
    ("brokers", "factor", "text"),
    [
        (((1, None, True),), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        ((), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (((1, None, False), (2, None, True)), 3, "The target replication factor of 3 cannot be reached because only 2"),
        (((1, None, False),), 0, "Invalid replication factor 0: the replication factor must be positive."),
    ],
)
def test_what_cannot_be_placed_is_refused(
    brokers: Iterable[tuple[int, str | None, bool]], factor: int, text: str
) -> None:
    """In Kafka's words."""
    with pytest.raises(KafkaError) as refused:
        placer(*brokers).place(factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert f"Unable to replicate the partition {factor} time(s): {text}" in str(refused.value)


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9),
    st.integers(1, 5),
    st.integers(0, 1 << 64),
)
def test_any_cluster_has_fair_partitions(racks: list[tuple[str | None, bool]], factor: int, seed: int) -> None:
    """Distinct brokers, an unfenced leader; one more partition for no more than one leader of a rack; all racks before one twice."""
    brokers = [UsableBroker(node_id, rack, fenced) for node_id, (rack, fenced) in enumerate(racks)]
    unfenced = {broker.node_id for broker in brokers if not broker.fenced}
    if not unfenced or factor > len(brokers):
        return
    place = StripedPlacer(brokers, draws_from(lambda: UUID(int=seed))).place
    names = [rack for rack, _ in racks]
    sizes = Counter(names)
    for _ in range(20):
        replicas = place(factor)
        assert len(set(replicas)) == factor
        assert replicas[0] in unfenced
        used = Counter(names[replica] for replica in replicas)
        most = max(used.values())
        assert all(used[rack] in {size, most, most - 1} for rack, size in sizes.items())


@given(st.integers(2, 9), st.integers(0, 1 << 64))
def test_leaders_are_even(brokers: int, seed: int) -> None:
    """Over any number of rounds, without racks."""
    place = StripedPlacer(
        (UsableBroker(node_id, None, False) for node_id in range(brokers)), draws_from(lambda: UUID(int=seed))
    ).place
    leaders = Counter(place(2)[0] for _ in range(brokers * 3))
    assert set(leaders.values()) == {3}


def test_a_single_broker_needs_no_random_number() -> None:
    """Ids of a simulated single node stay what they are."""

    def seed() -> UUID:
        raise AssertionError

    place = StripedPlacer([UsableBroker(1, None, False)], draws_from(seed)).place
    assert [place(1) for _ in range(3)] == [(1,)] * 3
