"""A runtime on three brokers under any sequence of writes, failovers and brokers that do not know of them."""

import pytest
from tests.support.seeds import seed
from tests.unit.busway_bus.coordinator.runtime_histories import run

SEEDS = 30


@pytest.mark.slow
def test_nothing_acknowledged_is_lost() -> None:
    for number in range(SEEDS):
        run(seed(1) + number)
