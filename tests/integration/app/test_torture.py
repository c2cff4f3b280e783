"""Everything at once, for some seconds; by hand for longer: `python -m tests.integration.app.torture --seconds 300 --seed 3`."""

import pytest
from tests.integration.app.torture import torture
from tests.support.seeds import seed

pytestmark = [pytest.mark.slow, pytest.mark.hostile]


async def test_what_a_service_promises_holds_whatever_happens_to_it() -> None:
    """Failures, time-outs, instances that come, drain and are killed, brokers that end: nothing lost, in order, committed to the letter,
    totals exact."""
    run = await torture(seed(3), seconds=3)
    assert run.ledger.commits > 0
