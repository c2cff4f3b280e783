"""Fares and surge: whole numbers, the same however the events come."""

import datetime as dt
from dataclasses import replace

import pytest
from gettaxi import fares, geo, matching, surge
from gettaxi.events import Ask, Command, Meter, Phase, Position, Ride, Status
from hypothesis import given
from hypothesis import strategies as st

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
RIDE = Ride(
    ride_id="r",
    city="berlin",
    rider_id="u",
    status=Status.MATCHED,
    lat=52.52,
    lng=13.405,
    requested_at=NOON,
    surge_percent=130,
    driver_id="d",
)


def position(seconds: float, lat: float = 52.52, phase: Phase = Phase.ON_RIDE) -> Position:
    """The driver with the rider in the car."""
    at = NOON + dt.timedelta(seconds=seconds)
    return Position(driver_id="d", city="berlin", lat=lat, lng=13.405, at=at, phase=phase, ride_id="r")


def test_a_fare_by_hand() -> None:
    """3.00 and 1 km at 1.50 and 2 minutes at 0.30, times 1.3, rounded half up."""
    meter = Meter(positions=2, distance_mm=1_000_000, started_at=NOON, last_at=NOON + dt.timedelta(minutes=2))
    assert fares.price_cents(meter, 100) == 510
    assert fares.price_cents(meter, 130) == 663
    assert fares.price_cents(replace(meter, distance_mm=1_003_333), 100) == 510
    assert fares.price_cents(replace(meter, distance_mm=1_003_334), 100) == 511
    assert fares.price_cents(Meter(), 100) == fares.BASE_CENTS


def test_what_is_known_already_changes_nothing_at_all() -> None:
    """Neither an offset that is in the ride nor a position that is not newer than the last moves the meter; offsets never go back."""
    begun = fares.drive(RIDE, position(10), 7)
    assert fares.drive(begun, position(20, 52.53), 7) is begun
    assert fares.drive(begun, position(20, 52.53), 3) is begun
    same_time = fares.drive(begun, position(10, 52.53), 8)
    assert (same_time.meter, same_time.last_position_offset) == (begun.meter, 8)
    ended = fares.drive(begun, position(10, phase=Phase.DROPPED_OFF), 8)
    assert (ended.status, ended.meter, ended.fare_cents) == (Status.ENDED, begun.meter, 390)
    assert fares.drive(ended, position(30, 52.53), 9) is ended


@given(
    st.lists(st.tuples(st.integers(0, 600), st.floats(52.4, 52.6), st.sampled_from([*Phase])), max_size=30),
    st.lists(st.integers(0, 29), max_size=5),
)
def test_what_comes_again_changes_no_fare(events: list[tuple[int, float, Phase]], restarts: list[int]) -> None:
    """From any offset, any number of times, in steps or at once: the service's meter is what the stored positions come to."""
    log = [position(*event) for event in events]
    log.append(position(601, phase=Phase.DROPPED_OFF))
    log.append(position(700))
    ride = RIDE
    for begin in [*restarts, 0]:
        for offset, logged in enumerate(log[begin:], begin):
            if offset <= ride.last_position_offset + 1 or begin == 0:
                ride = fares.drive(ride, logged, offset)
    assert ride.status is Status.ENDED
    stored = [
        fares.Stored(offset=offset, key="berlin", recorded_at=position.at, position=position)
        for offset, position in enumerate(log)
    ]
    assert fares.recompute(ride, stored) == (ride.meter, ride.fare_cents)


def test_what_was_put_aside_costs_nothing_in_either_way() -> None:
    """A place off the map, another driver, another ride and a clock that is ahead are left out by the batch as by the service."""
    good = [position(0, phase=Phase.PICKED_UP), position(10, 52.53), position(20, 52.54, Phase.DROPPED_OFF)]
    bad = [position(5, 0.0), replace(position(6, 52.6), driver_id="x"), replace(position(7, 52.6), ride_id="q")]
    log = [good[0], *bad, position(9000, 52.6), good[1], good[2]]
    ride = RIDE
    stored = []
    for offset, logged in enumerate(log):
        recorded_at = NOON + dt.timedelta(seconds=30)
        stored.append(fares.Stored(offset=offset, key="berlin", recorded_at=recorded_at, position=logged))
        try:
            matching.check_position(logged, key="berlin", recorded_at=recorded_at)
        except (matching.Impossible, geo.OffTheMap):
            continue
        ride = fares.drive(ride, logged, offset)
    assert ride.meter.positions == 3
    assert fares.recompute(ride, stored) == (ride.meter, ride.fare_cents)
    plain = RIDE
    for offset, logged in enumerate(good):
        plain = fares.drive(plain, logged, offset)
    assert plain.fare_cents == ride.fare_cents


@given(st.integers(0, 200), st.integers(0, 200))
def test_prices_rise_with_demand_and_fall_with_supply_within_bounds(demand: int, supply: int) -> None:
    """Never below the plain price, never above three times it, monotone, in steps of ten."""
    percent = surge.percent(demand, supply)
    assert surge.PLAIN_PERCENT <= percent <= surge.MOST_PERCENT
    assert percent % 10 == 0
    assert surge.percent(demand + 1, supply) >= percent
    assert surge.percent(demand, supply + 1) <= percent


events = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.booleans(), st.sampled_from("ab")), max_size=60)


@given(events)
def test_windows_are_what_their_definition_says(events: list[tuple[int, int, bool, str]]) -> None:
    """For random events, each up to the lateness out of order: each complete window of each cell counts exactly its own."""
    windows = surge.Windows(NOON)
    log = sorted((second + late, second, ride, cell) for second, late, ride, cell in events)
    closed = []
    for number, (now, second, is_ride, cell) in enumerate(log):
        at = NOON + dt.timedelta(seconds=second)
        (windows.demand if is_ride else windows.supply)(cell, at, f"{number % 7}")
        closed += windows.pass_time(NOON + dt.timedelta(seconds=now))
    closed += windows.pass_time(NOON + dt.timedelta(hours=1))
    assert windows.late == 0
    expected = {}
    for start in (NOON + surge.SLIDE * number for number in range(31)):
        for cell in "ab":
            inside = [
                (is_ride, number % 7)
                for number, (_, second, is_ride, of) in enumerate(log)
                if of == cell and start <= NOON + dt.timedelta(seconds=second) < start + surge.WINDOW
            ]
            if inside:
                names = set(inside)
                expected[start, cell] = (sum(counted for counted, _ in names), sum(not counted for counted, _ in names))
    assert {(window.start, window.cell): (window.demand, window.supply) for window in closed} == expected


def test_what_is_too_late_is_counted_and_changes_nothing() -> None:
    """An event whose windows are all complete is late; one that still has an open window counts there."""
    windows = surge.Windows(NOON)
    windows.supply("a", NOON + dt.timedelta(seconds=5), "d")
    windows.pass_time(NOON + dt.timedelta(seconds=200))
    windows.supply("a", NOON + dt.timedelta(seconds=100), "late")
    assert windows.late == 1
    windows.supply("a", NOON + dt.timedelta(seconds=150), "in time")
    assert windows.late == 1
    closed = windows.pass_time(NOON + dt.timedelta(seconds=400))
    assert {window.supply for window in closed} == {1}
    assert min(window.start for window in closed) == NOON + dt.timedelta(seconds=140)


CHECKS = [
    (replace(position(0), lat=48.1), "km from the centre of berlin"),
    (replace(position(0), lat=float("nan")), "no place on earth"),
    (replace(position(0), city="atlantis"), "city is 'atlantis'; rides are in amsterdam"),
    (replace(position(0), driver_id=""), "driver_id is empty"),
    (replace(position(0), ride_id=None), "ride_id is None in phase ON_RIDE"),
    (position(120), "set the device's clock"),
    (None, "the value is missing"),
]


@pytest.mark.parametrize(("bad", "reason"), CHECKS)
def test_impossible_positions_are_named(bad: Position | None, reason: str) -> None:
    """Each names the field and what it should be."""
    with pytest.raises(ValueError, match=reason):
        matching.check_position(bad, key=bad.city if bad else "berlin", recorded_at=NOON)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rider_id": None}, "rider_id is missing"),
        ({"lat": None}, "lat and lng are missing"),
        ({"ride_id": ""}, "ride_id is empty"),
        ({"ask": Ask.DECLINED}, "driver_id is missing"),
        ({"city": "lisbon"}, "the record's key is 'berlin'"),
    ],
)
def test_impossible_commands_are_named(changes: dict[str, object], reason: str) -> None:
    """Each names the field and what it should be."""
    good = Command(ask=Ask.REQUESTED, ride_id="r", city="berlin", at=NOON, rider_id="u", lat=52.52, lng=13.4)
    assert matching.check_command(good, key="berlin", recorded_at=NOON) is good
    with pytest.raises(matching.Impossible, match=reason):
        matching.check_command(replace(good, **changes), key="berlin", recorded_at=NOON)  # type: ignore[arg-type]
