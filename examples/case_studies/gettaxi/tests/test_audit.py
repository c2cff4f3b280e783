"""The audit counts what is lost, doubled or wrong, and nothing else."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gettaxi import fares, geo
from gettaxi.audit import COMMANDS, POSITIONS, RIDES, Audit
from gettaxi.events import Ask, Command, Meter, Phase, Position, Ride, Status

from busway import ConsumerRecord

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
CENTRE = geo.CITIES["berlin"]


def position(second: int, phase: Phase = Phase.FREE, ride_id: str | None = None) -> Position:
    """A driver on the way north."""
    at = NOON + dt.timedelta(seconds=second)
    lat = CENTRE.lat + second / 10_000
    return Position(driver_id="d", city="berlin", lat=lat, lng=CENTRE.lng, at=at, phase=phase, ride_id=ride_id)


def request(ride_id: str = "r") -> Command:
    """A rider in the centre."""
    return Command(
        ask=Ask.REQUESTED, ride_id=ride_id, city="berlin", at=NOON, rider_id="u", lat=CENTRE.lat, lng=CENTRE.lng
    )


def ride(status: Status, ride_id: str = "r", **changed: Any) -> Ride:
    """A ride of the driver."""
    plain = Ride(
        ride_id=ride_id, city="berlin", rider_id="u", status=status, lat=CENTRE.lat, lng=CENTRE.lng, requested_at=NOON
    )
    return replace(plain, **{"driver_id": "d", **changed})


def stored(topic: str, offset: int, value: Any) -> ConsumerRecord[Any, Any]:
    """A record of partition 0."""
    at = getattr(value, "at", NOON)
    return ConsumerRecord(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp_ms=int(at.timestamp() * 1000),
        key="berlin",
        value=value,
        headers=(),
    )


def counts(audit: Audit) -> tuple[int, int, int]:
    """Lost, doubled, wrong."""
    return audit.lost, audit.doubled, audit.wrong


@pytest.mark.parametrize("read_first", [False, True])
def test_what_is_at_its_offset_is_checked(read_first: bool) -> None:
    """Whether the acknowledgement or the reader comes first."""
    audit = Audit()
    steps: list[Callable[[], None]] = [
        lambda: audit.acknowledged(position(1), POSITIONS, 0, 7),
        lambda: audit.record(stored(POSITIONS, 7, position(1))),
    ]
    for step in reversed(steps) if read_first else steps:
        step()
    assert (audit.checked, audit.waiting, counts(audit)) == (1, 0, (0, 0, 0))


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    """The reader has passed its offset; or another record is at it; or it is acknowledged behind the reader."""
    audit = Audit()
    audit.acknowledged(position(1), POSITIONS, 0, 0)
    audit.acknowledged(position(2), POSITIONS, 0, 1)
    audit.record(stored(POSITIONS, 1, position(2)))
    assert (audit.checked, counts(audit)) == (1, (1, 0, 0))
    audit.acknowledged(position(3), POSITIONS, 0, 2)
    audit.record(stored(POSITIONS, 2, position(4)))
    assert counts(audit) == (2, 0, 0)
    audit.passed(POSITIONS, 0, 10)
    audit.acknowledged(position(5), POSITIONS, 0, 9)
    assert counts(audit) == (3, 0, 0)


def test_what_waits_for_the_reader_is_not_lost() -> None:
    """It is behind the reader's position."""
    audit = Audit()
    audit.acknowledged(position(1), POSITIONS, 0, 5)
    audit.passed(POSITIONS, 0, 5)
    assert (audit.waiting, counts(audit)) == (1, (0, 0, 0))


def test_a_record_that_comes_twice_is_doubled() -> None:
    """A position and a command; a record that only the reader knows is no fault by itself."""
    audit = Audit()
    for offset, event in enumerate([position(1), position(2), position(2), position(1)]):
        audit.record(stored(POSITIONS, offset, event))
    assert counts(audit) == (0, 2, 0)
    for offset, command in enumerate([request(), replace(request(), ask=Ask.CANCELLED, lat=None), request()]):
        audit.record(stored(COMMANDS, offset, command))
    assert counts(audit) == (0, 3, 0)


def test_a_driver_with_two_rides_is_doubled() -> None:
    """Only while the first one lasts."""
    audit = Audit()
    rows = [ride(Status.MATCHED), ride(Status.CANCELLED), ride(Status.MATCHED, "s"), ride(Status.MATCHED, "t")]
    for offset, row in enumerate(rows):
        audit.record(stored(RIDES, offset, row))
    assert counts(audit) == (0, 1, 0)


def test_a_request_that_the_service_has_committed_without_a_ride_is_lost() -> None:
    """Before the commit it waits; a ride that comes after all takes the count back."""
    audit = Audit()
    audit.acknowledged(request(), COMMANDS, 0, 3)
    audit.record(stored(COMMANDS, 3, request()))
    audit.handled({0: 3})
    assert (audit.unanswered, counts(audit)) == (1, (0, 0, 0))
    audit.handled({0: 4})
    assert counts(audit) == (1, 0, 0)
    audit.record(stored(RIDES, 0, ride(Status.WAITING, driver_id=None)))
    assert (audit.unanswered, counts(audit)) == (0, (0, 0, 0))


@pytest.mark.parametrize(("cents", "wrong"), [(0, 0), (1, 1)])
def test_a_fare_is_computed_again_once_its_positions_are_read(cents: int, wrong: int) -> None:
    """A meter that saw a position twice, or not at all, has another fare."""
    way = [
        position(second, phase, "r")
        for second, phase in enumerate((Phase.TO_PICKUP, Phase.PICKED_UP, Phase.ON_RIDE, Phase.DROPPED_OFF))
    ]
    meter = Meter()
    for each in way[1:]:
        meter = fares.add(meter, each)
    ended = ride(
        Status.ENDED,
        meter=meter,
        fare_cents=fares.price_cents(meter, 100) + cents,
        first_position_offset=1,
        last_position_offset=3,
    )
    audit = Audit()
    audit.record(stored(RIDES, 0, ended))
    for offset, each in enumerate(way):
        assert audit.fares == 0
        audit.record(stored(POSITIONS, offset, each))
    assert (audit.fares, counts(audit)) == (1, (0, 0, wrong))
