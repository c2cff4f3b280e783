"""Bugs put in on purpose are found; how soon is told in `planted`."""

import os

import pytest

from tests.simulation.explore import searches
from tests.simulation.planted import PLANTED
from tests.simulation.planting import Moved, Planted, planted

SECONDS_MAX = 240.0


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    """What it changes is where it was, and is as before afterwards."""
    from tests.simulation.planting import _place

    before = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
    with planted(bug):
        during = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
        assert during != before
    assert [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)] == before


def test_code_that_has_moved_is_an_error() -> None:
    """A bug that is planted nowhere would never be found."""
    with pytest.raises(Moved, match="not there any more"), planted(Planted("x", "x", (("json:no_such", str),))):
        pass


@pytest.mark.hostile
@pytest.mark.timeout(1500)
def test_planted_bugs_are_found() -> None:
    """Each within four minutes of seeds."""
    missed = [
        found.bug for found in searches(PLANTED, seconds=SECONDS_MAX, jobs=os.cpu_count() or 1) if not found.anomaly
    ]
    assert missed == []
