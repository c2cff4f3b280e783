"""The service with crashes, freezes and cut connections, under seeds."""

import pytest
from gettaxi.simulation import days, each_request_is_a_ride, no_driver_is_given_to_two_rides, simulation

from busway import App
from busway.testing import SimulationFailed, simulate

pytestmark = [pytest.mark.slow, pytest.mark.simulation, pytest.mark.timeout(600)]
SEEDS = 6


def forgets_who_drives(app: App) -> None:
    """A city begins without the rides that are in the table: an instance that takes it over gives its drivers away again."""
    known = next(route for route in app.routes if route.function.__name__ == "dispatch").function.__globals__
    city = known["City"]
    known["City"] = lambda name, _: city(name, [])


def test_no_driver_is_given_away_twice() -> None:
    """In any of them."""
    assert simulation.run(SEEDS) == SEEDS


def test_a_city_that_forgets_is_found() -> None:
    """It takes one fault that moves a city to another process."""
    with pytest.raises(SimulationFailed, match=r"drives .* and|is MATCHED|is not|stopped by itself") as failure:
        simulate(
            simulation.target,
            workload=days,
            properties=[each_request_is_a_ride],
            invariants=[no_driver_is_given_to_two_rides],
            prepare=forgets_who_drives,
            seeds=300,
        )
    assert failure.value.history.faults
