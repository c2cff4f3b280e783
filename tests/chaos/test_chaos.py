"""Ten faults on three processes under load: nothing acknowledged is lost, doubled or different."""

import pytest

from tests.chaos.run import Floors, Run
from tests.support.patience import patient
from tests.support.seeds import seed

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(patient(600))]


async def test_ten_faults() -> None:
    """Each kind once, and one more."""
    report = await Run(seed=seed(1), faults=10, nodes=3, floors=Floors(), notice=print).run()
    print(report.table())
    assert report.good, report.table()
