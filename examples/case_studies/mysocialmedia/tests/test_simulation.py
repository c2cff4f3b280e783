"""The service with crashes, freezes and cut connections, under seeds."""

import dataclasses
from typing import Any

import pytest
from mysocialmedia.simulation import simulation, totals_are_exact, users

from busway import App
from busway.testing import SimulationFailed, simulate

pytestmark = [pytest.mark.slow, pytest.mark.simulation, pytest.mark.timeout(600)]
SEEDS = 6


def counts_at_least_once(app: App) -> None:
    """Posts are written before their marks, and the place among the activities after both: what comes again is counted again."""
    app.routes[0] = dataclasses.replace(app.routes[0], guarantee="at_least_once")
    known = app.routes[0].function.__globals__
    posts, marks = known["posts"], known["marks"]
    put = marks.put

    async def behind_posts(key: str, mark: Any, **more: Any) -> None:
        await posts.flush()
        await put(key, mark, **more)

    marks.put = behind_posts


def test_totals_are_exact_whatever_fails() -> None:
    """In any of them."""
    assert simulation.run(SEEDS) == SEEDS


def test_a_service_that_counts_again_is_found() -> None:
    """By its totals, or by its marks."""
    with pytest.raises(SimulationFailed, match="totals_are_exact") as failure:
        simulate(
            simulation.target,
            workload=users,
            properties=[totals_are_exact],
            prepare=counts_at_least_once,
            seeds=300,
        )
    assert failure.value.history.faults
