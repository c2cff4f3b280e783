"""GetTaxi under simulation: `busway simulate gettaxi.simulation:simulation` from the folder above.

Here: a few drivers and riders of two cities, and what holds whatever fails.
Not here: the rules (`matching`, `city`), a town as it is (`traffic`).
"""

import asyncio
import datetime as dt
from collections import defaultdict
from typing import Final

from busway.testing import SimulatedBus, Simulation
from gettaxi import geo, matching, service
from gettaxi.events import Ask, Command, Phase, Position, Ride, Status

CITIES: Final = ("berlin", "lisbon")
DRIVERS: Final = 3
RIDES: Final = 6
"""Of each city: fewer drivers than rides, so that they are wanted by several."""
STEP_S: Final = 4.0
"""Devices report so often."""
DEGREES_MOST: Final = 0.01

simulation = Simulation(service.app, environment={"GETTAXI_INSTANCE": "{instance}"})


@simulation.workload
async def days(bus: SimulatedBus) -> None:
    """The cities at once."""
    bus.state.asked = set()
    await asyncio.gather(*(_day(bus, city) for city in CITIES))


async def _day(bus: SimulatedBus, city: str) -> None:
    """Drivers who report where they are and bring riders to an end, riders who ask and sometimes give up."""
    requested = 0
    for _ in range(3 * RIDES):
        rides = [ride for ride in (await bus.rows(service.rides)).values() if ride.city == city]
        driving = {ride.driver_id: ride for ride in rides if ride.status in matching.BUSY}
        for number in range(DRIVERS):
            await _report(bus, city, f"{city}-d{number}", driving.get(f"{city}-d{number}"))
        if requested < RIDES and bus.chance.random() < 0.6:
            requested += 1
            await _ask(bus, city, Ask.REQUESTED, f"{city}-r{requested}")
        if rides and bus.chance.random() < 0.2:
            await _ask(bus, city, bus.chance.choice([Ask.CANCELLED, Ask.DECLINED]), bus.chance.choice(rides).ride_id)
        await bus.sleep(bus.chance.uniform(0, STEP_S))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def _report(bus: SimulatedBus, city: str, driver_id: str, ride: Ride | None) -> None:
    centre = geo.CITIES[city]
    phase = Phase.FREE
    if ride is not None:
        on_ride = (Phase.ON_RIDE, Phase.DROPPED_OFF)
        phase = bus.chance.choice((Phase.TO_PICKUP, Phase.PICKED_UP) if ride.status is Status.MATCHED else on_ride)
    position = Position(
        driver_id=driver_id,
        city=city,
        lat=centre.lat + bus.chance.uniform(0, DEGREES_MOST),
        lng=centre.lng + bus.chance.uniform(0, DEGREES_MOST),
        at=_now(),
        phase=phase,
        ride_id=ride.ride_id if ride is not None else None,
    )
    await bus.send(service.positions, position, key=city)


async def _ask(bus: SimulatedBus, city: str, ask: Ask, ride_id: str) -> None:
    centre = geo.CITIES[city]
    wanted = ask is Ask.REQUESTED
    command = Command(
        ask=ask,
        ride_id=ride_id,
        city=city,
        at=_now(),
        rider_id=f"of {ride_id}" if wanted else None,
        lat=centre.lat if wanted else None,
        lng=centre.lng if wanted else None,
        driver_id=f"{city}-d0" if ask is Ask.DECLINED else None,
    )
    await bus.send(service.commands, command, key=city)
    if wanted:
        bus.state.asked.add(ride_id)


@simulation.invariant
async def no_driver_is_given_to_two_rides(bus: SimulatedBus) -> None:
    """In the order of the rows, a driver is let go by one ride before the next one has him."""
    driving: dict[str, str] = {}
    had: dict[str, str | None] = {}
    for record in await bus.records(service.rides.topic):
        ride = record.value
        if ride is None:
            continue
        before = had.get(ride.ride_id)
        if before is not None and driving.get(before) == ride.ride_id:
            del driving[before]
        had[ride.ride_id] = ride.driver_id
        if ride.status in matching.BUSY:
            assert ride.driver_id is not None, f"{ride.ride_id} is {ride.status.value} without a driver"
            other = driving.setdefault(ride.driver_id, ride.ride_id)
            assert other == ride.ride_id, f"{ride.driver_id} drives {other} and {ride.ride_id}"


@simulation.outcome
async def each_request_is_a_ride(bus: SimulatedBus) -> None:
    """None is lost, none is there twice, and the meters have seen what devices reported."""
    rides = await bus.rows(service.rides)
    assert set(rides) == bus.state.asked, f"rides {sorted(rides)}, asked for {sorted(bus.state.asked)}"
    seen: dict[str, int] = defaultdict(int)
    for record in await bus.records(service.positions):
        ride = rides.get((record.value and record.value.ride_id) or "")
        if ride is not None and ride.first_position_offset <= record.offset <= ride.last_position_offset:
            seen[ride.ride_id] += 1
    for ride in rides.values():
        assert ride.meter.positions <= seen[ride.ride_id], f"the meter of {ride.ride_id} has counted a position twice"
