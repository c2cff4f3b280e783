"""Three or five pure cores under seeds: nothing that was committed is lost, and after the faults all works again."""

import pytest
from tests.support.variants import with_variants
from tests.unit.busway_bus.quorum.simulated import run

SEEDS = 200
STEP = 25


@pytest.mark.slow
@pytest.mark.parametrize("first", with_variants(range(0, SEEDS, STEP), gate=[0, STEP]))
def test_seeds_hold(first: int) -> None:
    """The invariants hold through crashes, cuts, partitions and lost messages; the faults over, everything is committed everywhere."""
    done = [run(seed) for seed in range(first, first + STEP)]
    assert sum(simulation.invariants.elections for simulation in done) > STEP
    assert sum(simulation.acknowledged for simulation in done) > 10 * STEP


@pytest.mark.slow
def test_a_seed_decides_everything() -> None:
    """The same seed is the same run."""
    assert (run(7).trace, run(7).events) == (run(7).trace, run(7).events)
    assert run(7).trace != run(8).trace
