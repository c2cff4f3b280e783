"""Three controllers under seeds, with crashes, power cuts, full and slow disks and broken networks: nothing that was answered is lost."""

import pytest

from tests.simulation.quorum.cluster import run
from tests.support.variants import with_variants

SEEDS = 12
"""`make hostile` runs 120, and others with planted bugs."""
STEP = 6


@pytest.mark.slow
@pytest.mark.parametrize("first", with_variants(range(0, SEEDS, STEP), gate=[0]))
def test_seeds_hold(first: int) -> None:
    """One leader an epoch, one history, images of committed records alone; and when the faults are over all works again."""
    done = [run(seed) for seed in range(first, first + STEP)]
    assert sum(len(simulation.invariants.leaders) for simulation in done) > STEP
    assert sum(len(simulation.invariants.answers) for simulation in done) > 20 * STEP
    assert sum(simulation.refused for simulation in done) > STEP


@pytest.mark.slow
def test_a_seed_decides_everything() -> None:
    """The same seed is the same run."""
    assert run(7).world.trace.digest == run(7).world.trace.digest != run(8).world.trace.digest


@pytest.mark.slow
def test_one_and_five_voters() -> None:
    """One is its own majority; of five any three are."""
    assert len(run(1, voters=1).invariants.answers) > 20
    assert len(run(1, voters=5).invariants.answers) > 20
