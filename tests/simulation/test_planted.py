"""Bugs put in on purpose are found; how soon is told in `planted`."""

import os

import pytest

from tests.simulation.explore import outcomes
from tests.simulation.planted import PLANTED, UNPROVEN, Moved, Planted, planted

SECONDS_MAX = 120.0


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    """What it changes is where it was, and is as before afterwards."""
    from tests.simulation.planted import _place

    before = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
    with planted(bug):
        during = [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)]
        assert during != before
    assert [vars(owner)[name] for owner, name in (_place(where) for where, _ in bug.changes)] == before


def test_what_is_unproven_is_planted() -> None:
    """The list of bugs that the seeds may miss names no others."""
    assert {bug.name for bug in PLANTED} >= UNPROVEN


def test_code_that_has_moved_is_an_error() -> None:
    """A bug that is planted nowhere would never be found."""
    with pytest.raises(Moved, match="not there any more"), planted(Planted("x", "x", (("json:no_such", str),))):
        pass


@pytest.mark.hostile
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug.name not in UNPROVEN], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted) -> None:
    """Within two minutes of seeds."""
    found = outcomes(first=0, seconds=SECONDS_MAX, seeds=None, jobs=os.cpu_count() or 1, plant=bug.name)
    assert any(outcome.anomalies for outcome in found)
