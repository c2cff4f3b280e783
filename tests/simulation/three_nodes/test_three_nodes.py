"""Three whole nodes under faults lose nothing that was acknowledged, and work again when the faults are over."""

import pytest

from busway_bus.testing.world import World
from tests.simulation.three_nodes.nodes import run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """No record is lost, moved or doubled; all replicas are equal at the end."""
    acknowledged, made = World(seed).run(run)
    assert acknowledged.total
    assert made.total() == 6
