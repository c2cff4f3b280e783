"""Three whole nodes under faults lose nothing that was acknowledged, and work again when the faults are over."""

import pytest

from busway_bus.testing.world import World
from tests.simulation.three_nodes import exactly_once
from tests.simulation.three_nodes.nodes import run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """No record is lost, moved or doubled; all replicas are equal at the end."""
    acknowledged, made = World(seed).run(run)
    assert acknowledged.total
    assert made.total() == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_copy_in_transactions_is_exactly_once(seed: int) -> None:
    """The coordinators of its group and of its transactions fail over with their state."""
    copied, made = World(seed).run(exactly_once.run)
    assert copied
    assert made.total() == 5
