"""Any sequence of fencings, ISR changes, reports, moves and elections keeps the rules of leaders."""

import random

import pytest
from tests.support.seeds import seed
from tests.unit.busway_bus.controller.leader_model import play

CLUSTERS = 40


@pytest.mark.slow
@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("elr", [False, True])
def test_leaders_have_everything_committed(elr: bool, unclean: bool) -> None:
    """But after an unclean election, which happens only where it is allowed, or by request, or as the last resort."""
    numbers = random.Random(seed(14))
    models = [play(numbers, elr=elr, unclean=unclean) for _ in range(CLUSTERS)]
    assert sum(model.elections for model in models) > 200
    assert sum(model.unclean for model in models) > 20
