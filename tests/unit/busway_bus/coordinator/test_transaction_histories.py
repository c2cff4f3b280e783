"""Transactions of several producers while the leaders of everything that they use move from broker to broker."""

import pytest
from tests.support.seeds import seed
from tests.unit.busway_bus.coordinator.transaction_histories import run


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["version 0", "version 2"])
def test_transactions_are_whole(number: int) -> None:
    run(2 * seed(1) + number)
