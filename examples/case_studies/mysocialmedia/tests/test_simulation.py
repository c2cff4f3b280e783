"""The service with crashes, freezes and cut connections, under seeds."""

import dataclasses
from typing import Any

import pytest
from mysocialmedia.simulation import simulation, totals_are_exact, users

from busway import App
from busway.testing import SimulationFailed, simulate

pytestmark = [pytest.mark.slow, pytest.mark.simulation, pytest.mark.timeout(600)]
SEEDS = 6


def forgets_what_was_counted(app: App) -> None:
    """A post does not say up to which activity it is counted: what comes again is counted again."""
    posts = app.routes[0].function.__globals__["posts"]
    put = posts.put

    async def without_offset(key: str, post: Any, **more: Any) -> None:
        await put(key, dataclasses.replace(post, last_offset=-1), **more)

    posts.put = without_offset


def test_totals_are_exact_whatever_fails() -> None:
    """In any of them."""
    assert simulation.run(SEEDS) == SEEDS


def test_a_service_that_counts_again_is_found() -> None:
    """By its totals, or by its marks."""
    with pytest.raises(SimulationFailed, match="totals_are_exact") as found:
        simulate(
            simulation.target,
            workload=users,
            properties=[totals_are_exact],
            prepare=forgets_what_was_counted,
            seeds=300,
        )
    assert found.value.history.faults
