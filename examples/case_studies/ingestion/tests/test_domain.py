"""The rules and the joint of the two layers, without IO."""

import dataclasses
import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingestion import domain
from ingestion.events import LowFuel, Position, Truck
from ingestion.generate import drive

AT = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)


def position(**changes: object) -> Position:
    """A truck on the road with half a tank."""
    given = {"truck_id": "a", "latitude": 48.1, "longitude": 11.5, "speed_kmh": 70.0, "fuel_percent": 50.0, "at": AT}
    return Position(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"truck_id": ""}, "truck_id is empty"),
        ({"latitude": 90.1}, "latitude is 90.1"),
        ({"longitude": -181.0}, "longitude is -181"),
        ({"speed_kmh": 300.0}, "speed_kmh is 300"),
        ({"fuel_percent": -1.0}, "fuel_percent is -1"),
        ({"latitude": math.nan}, "latitude is nan"),
    ],
)
def test_impossible_positions_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    """The refusal names the field and what it can be."""
    with pytest.raises(domain.Impossible, match=named):
        domain.apply(None, position(**changes), 0)


def test_a_truck_runs_low_once_until_it_has_filled_up() -> None:
    """A sensor that trembles around the limit gives one alert; after a full tank there can be another."""
    truck: Truck | None = None
    alert_ids = []
    for offset, fuel in enumerate([16, 14.9, 15.1, 14, 24.9, 60, 15, 14]):
        truck, alert = domain.apply(truck, position(fuel_percent=float(fuel)), offset)
        alert_ids += [alert.alert_id] if alert else []
    assert alert_ids == ["a@1", "a@7"]


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 4)), max_size=30))
def test_positions_that_come_again_change_nothing(steps: list[tuple[float, int]]) -> None:
    """However often the newest are delivered again, truck and alerts are those of delivering each once."""
    once: Truck | None = None
    twice: Truck | None = None
    first: list[LowFuel | None] = []
    second: list[LowFuel | None] = []
    for offset, (fuel, back) in enumerate(steps):
        once, alert = domain.apply(once, position(fuel_percent=fuel), offset)
        first.append(alert)
        for again in range(max(offset - back, 0), offset + 1):
            twice, alert = domain.apply(twice, position(fuel_percent=steps[again][0]), again)
            second += [alert] if again == offset else [alert] if alert else []
    assert (once, first) == (twice, second)


@given(
    count=st.integers(0, 40),
    most=st.integers(1, 50),
    stored=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6),
    restart=st.integers(0, 40),
)
def test_the_layers_meet_without_gap_or_overlap(
    count: int, most: int, stored: list[tuple[int, int]], restart: int
) -> None:
    """Whenever the store grows and wherever the service starts again: each offset is shown once, or is in a gap that is shown."""
    end = 0
    recent = domain.Recent(0, most=most)
    for offset in range(count):
        if offset == restart:
            recent = domain.Recent(end, most=most)
            for again in range(end, offset):
                recent.add(again, position())
        recent.add(offset, position())
        for at, reach in stored:
            if at == offset:
                end = max(end, min(reach, offset + 1))
                recent.stored(end)
        joint = domain.meet({0: end}, {0: recent}, "a")
        offsets = [*range(end), *(entry.offset for entry in joint.entries)]
        missing = [offset for gap in joint.gaps for offset in range(gap.start, gap.end)]
        assert sorted(offsets + missing) == list(range(offset + 1))
        assert len(recent) <= most


def test_the_same_seed_drives_the_same_roads() -> None:
    """And every position on them can be true."""
    first = list(drive(7, 300, seed=3))
    assert first == list(drive(7, 300, seed=3)) != list(drive(7, 300, seed=4))
    for position in first:
        domain.check(position)
    truck: Truck | None = None
    alerts = 0
    for offset, position in enumerate(dataclasses.replace(each) for each in first if each.truck_id == "truck-000"):
        truck, alert = domain.apply(truck, position, offset)
        alerts += alert is not None
    assert truck is not None
    assert truck.positions == 300
