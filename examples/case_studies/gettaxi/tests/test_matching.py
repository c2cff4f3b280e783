"""The closest free driver, and none twice."""

import datetime as dt

from gettaxi import geo
from gettaxi.drivers import UNSEEN_AFTER, Drivers
from gettaxi.events import Position, Ride, Status
from gettaxi.matching import match
from hypothesis import given
from hypothesis import strategies as st

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
places = st.tuples(st.floats(52.42, 52.62), st.floats(13.25, 13.55))
near = st.tuples(st.floats(52.50, 52.54), st.floats(13.37, 13.44))


def seen(driver_id: str, lat: float, lng: float, at: dt.datetime = NOON) -> Position:
    """A free driver's report."""
    return Position(driver_id=driver_id, city="berlin", lat=lat, lng=lng, at=at)


@given(st.lists(places, max_size=40) | st.lists(near, min_size=20, max_size=60), near)
def test_the_search_by_cells_finds_whom_a_search_of_all_finds(
    drivers: list[tuple[float, float]], rider: tuple[float, float]
) -> None:
    """For random drivers and a random rider the ring search gives the closest of all that are within its reach."""
    city = Drivers()
    for number, (lat, lng) in enumerate(drivers):
        city.see(seen(f"d{number:02}", lat, lng))
    everyone = sorted((geo.distance_mm(*rider, lat, lng), f"d{number:02}") for number, (lat, lng) in enumerate(drivers))
    closest = city.closest(*rider)
    if everyone and everyone[0][0] <= 6_000_000:
        assert closest == (everyone[0][1], everyone[0][0])


def ride(number: int, status: Status = Status.WAITING) -> Ride:
    """A rider in the middle of Berlin."""
    return Ride(
        ride_id=f"r{number}", city="berlin", rider_id="u", status=status, lat=52.52, lng=13.405, requested_at=NOON
    )


def test_a_driver_is_matched_once() -> None:
    """Two riders at one place get two drivers, the closer one first; the third waits until a ride ends."""
    city = Drivers()
    city.see(seen("near", 52.521, 13.405))
    city.see(seen("far", 52.53, 13.405))
    rides = []
    for number in range(3):
        matched = match(ride(number), city)
        city.follow(matched.ride_id, matched.driver_id)
        rides.append(matched)
    assert [(matched.status, matched.driver_id) for matched in rides] == [
        (Status.MATCHED, "near"),
        (Status.MATCHED, "far"),
        (Status.WAITING, None),
    ]
    city.follow(rides[0].ride_id, None)
    assert match(rides[2], city).driver_id == "near"


def test_who_is_not_seen_is_not_offered() -> None:
    """A driver whose last report is too old is passed over, in event time."""
    city = Drivers()
    city.see(seen("silent", 52.521, 13.405))
    city.see(seen("far", 52.6, 13.405, NOON + UNSEEN_AFTER + dt.timedelta(seconds=1)))
    closest = city.closest(52.52, 13.405)
    assert closest is not None
    assert closest[0] == "far"
