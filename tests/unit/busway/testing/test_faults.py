"""What goes wrong in a simulation, drawn and named."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.testing.simulation.faults import FAULTS_MAX, OF_BROKER, OF_CLUSTER, Kind, Seed, draw


@given(st.integers(), st.integers(1, 5), st.sampled_from([1, 3, 5]))
def test_faults_are_the_seeds(seed: int, instances: int, nodes: int) -> None:
    """The same for the same seed, in their order, each of an instance or a broker that there is."""
    faults = draw(Random(seed), instances, nodes)
    assert faults == draw(Random(seed), instances, nodes)
    assert 1 <= len(faults) <= FAULTS_MAX
    assert [fault.number for fault in faults] == list(range(len(faults)))
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    for fault in faults:
        assert (fault.instance == 0) == (fault.kind in OF_BROKER)
        assert (fault.node > 0) == (fault.kind in OF_BROKER)
        assert fault.instance <= instances
        assert fault.node <= nodes
        assert nodes > 1 or fault.kind not in OF_CLUSTER
        assert (fault.step > 0) == (fault.kind is Kind.KILL_AT)


@given(st.integers(), st.none() | st.lists(st.integers(0, 9), unique=True).map(tuple))
def test_a_seed_is_what_is_typed(number: int, faults: tuple[int, ...] | None) -> None:
    """Its text and its parse are each other's inverse."""
    seed = Seed(number, faults)
    assert Seed.parse(seed.text) == seed


@pytest.mark.parametrize("text", ["", "x", "1:a", "1;2", ":"])
def test_no_seed(text: str) -> None:
    """The message shows one."""
    with pytest.raises(ValueError, match="17:0,4"):
        Seed.parse(text)


def test_some_faults_are_chosen() -> None:
    """By their number; all when none is named."""
    faults = draw(Random(1), 2)
    assert Seed(1).choose(faults) == faults
    assert Seed(1, ()).choose(faults) == ()
    assert Seed(1, (0,)).choose(faults) == faults[:1]
