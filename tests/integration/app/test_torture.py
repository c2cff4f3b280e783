"""Everything at once, for some seconds; by hand for longer: `python -m tests.integration.app.torture`."""

import random

import pytest
from tests.integration.app.torture import torture

pytestmark = [pytest.mark.slow, pytest.mark.hostile]


async def test_what_a_service_promises_holds_whatever_happens_to_it() -> None:
    """Failures, time-outs, instances that come, drain and are killed, brokers that end: nothing lost, in order, committed to the letter,
    totals exact."""
    seed = random.randrange(10**6)
    print(f"seed {seed}: python -m tests.integration.app.torture --seed {seed} --seconds 3")
    run = await torture(seed, seconds=3)
    assert run.ledger.commits > 0
