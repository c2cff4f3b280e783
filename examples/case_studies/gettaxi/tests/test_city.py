"""A city's dispatcher, crashing wherever it likes: one driver, one ride, one fare."""

import datetime as dt
import random
from collections import Counter, defaultdict

import pytest
from gettaxi import fares, matching
from gettaxi.city import City, drive
from gettaxi.drivers import UNSEEN_AFTER
from gettaxi.events import Ask, Command, Phase, Position, Ride, Status
from gettaxi.traffic import Plan, Traffic

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


class Table:
    """The rides as a compacted topic would have them, with every record that was ever written."""

    def __init__(self) -> None:
        self.rows: dict[str, Ride] = {}
        self.driving: dict[str, str] = {}

    def keep(self, city: City, ride: Ride) -> None:
        """Write a row and tell the city; no driver may have two."""
        before = self.rows.get(ride.ride_id)
        if before is not None and before.driver_id is not None and before.status in matching.BUSY:
            del self.driving[before.driver_id]
        if ride.status in matching.BUSY:
            assert ride.driver_id is not None
            assert ride.driver_id not in self.driving, f"{ride.driver_id} drives {self.driving[ride.driver_id]} already"
            self.driving[ride.driver_id] = ride.ride_id
        self.rows[ride.ride_id] = ride
        city.follow(ride.ride_id, ride)


def take_positions(city: City, table: Table, log: list[Position], begin: int) -> None:
    """As the service's handler does, from that offset to the end."""
    changed: dict[str, Ride] = {}
    for offset, position in enumerate(log[begin:], begin):
        city.see(position)
        if position.ride_id is not None:
            drive(changed, changed.get(position.ride_id) or table.rows.get(position.ride_id), position, offset)
    for ride in [*changed.values()]:
        table.keep(city, ride)
    for decide in (city.give_up, city.assign):
        for ride in decide():
            table.keep(city, ride)
    city.pass_time()


def take_command(city: City, table: Table, command: Command, offset: int) -> None:
    """As the service's handler does."""
    ride = table.rows.get(command.ride_id)
    if command.ask is Ask.REQUESTED:
        if ride is None:
            table.keep(city, city.request(command, offset, surge_percent=100))
    elif ride is not None and (after := matching.obey(ride, command, offset)) is not ride:
        table.keep(city, after)
    for assigned in city.assign():
        table.keep(city, assigned)


@pytest.mark.parametrize("seed", range(4))
def test_crashes_change_no_fare_and_match_nobody_twice(seed: int) -> None:
    """Memory is lost and events come again, from any earlier offset, many times over: rides end, each driver with one at a time, and each
    fare is what the stored positions say."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    traffic = Traffic(
        Plan(city="tallinn", drivers=12, rides_per_minute=12, seed=seed, start=NOON, half_m=1000, longest_m=800)
    )
    table, positions, commands = Table(), list[Position](), list[Command]()
    city = City("tallinn")
    sent: dict[str, Ride] = {}
    riders: dict[str, list[tuple[dt.datetime, float, float]]] = defaultdict(list)
    crashes = 0
    while traffic.now < NOON + 150 * SECOND or (traffic.open and traffic.now < NOON + 1800 * SECOND):
        traffic.requests = traffic.now < NOON + 150 * SECOND
        begin = len(positions)
        reported, asked = traffic.step()
        for rider in traffic.riders():
            riders[rider.ride_id].append((rider.at, rider.lat, rider.lng))
        positions += reported
        commands += asked
        if chance.random() < 0.05:
            crashes += 1
            city = City("tallinn", table.rows.values())
            begin -= chance.randrange(min(begin, 300) + 1)
            again = commands[-len(asked) - chance.randrange(4) :] if asked else []
        else:
            again = asked
        commands_first = chance.random() < 0.5
        if not commands_first:
            take_positions(city, table, positions, begin)
        for offset, command in enumerate(again, len(commands) - len(again)):
            take_command(city, table, command, offset)
        if commands_first:
            take_positions(city, table, positions, begin)
        for ride_id, ride in table.rows.items():
            if sent.get(ride_id) is not ride:
                sent[ride_id] = ride
                traffic.on_ride(ride)
    assert crashes > 5
    ended = [ride for ride in table.rows.values() if ride.status is Status.ENDED]
    assert len(ended) > 10
    assert table.rows.keys() == traffic.rides.keys()
    assert not [ride for ride in table.rows.values() if ride.status in matching.OPEN]
    for ride in ended:
        began, stopped = ride.meter.started_at, ride.meter.last_at
        assert began is not None
        assert stopped is not None
        before = {place for at, *place_ in riders[ride.ride_id] if at < began for place in [tuple(place_)]}
        assert before == {(ride.lat, ride.lng)}, "who waits is where the ride was asked for"
        during = [at for at, *_ in riders[ride.ride_id] if at >= began]
        assert during[0] - began < SECOND
        assert during[-1] - stopped < SECOND
        assert during == [during[0] + number * SECOND for number in range(len(during))], "each second has its place"
    stored = [
        fares.Stored(offset=offset, key="tallinn", recorded_at=position.at, position=position)
        for offset, position in enumerate(positions)
    ]
    for ride in ended:
        assert fares.recompute(ride, stored) == (ride.meter, ride.fare_cents)
    assert (city.ended, city.fares_cents) == (len(ended), sum(ride.fare_cents or 0 for ride in ended))


def at(driver_id: str, seconds: float, *, ride_id: str | None = None, lat: float = 52.52) -> Position:
    """A driver in Berlin, free or on the way to a rider."""
    phase = Phase.FREE if ride_id is None else Phase.TO_PICKUP
    time = NOON + dt.timedelta(seconds=seconds)
    return Position(driver_id=driver_id, city="berlin", lat=lat, lng=13.405, at=time, phase=phase, ride_id=ride_id)


def wanted(ride_id: str, seconds: float = 0.0) -> Command:
    """A rider in the middle of Berlin."""
    return Command(
        ask=Ask.REQUESTED,
        ride_id=ride_id,
        city="berlin",
        at=NOON + dt.timedelta(seconds=seconds),
        rider_id="u",
        lat=52.52,
        lng=13.405,
    )


def test_who_waits_longest_is_matched_first() -> None:
    """Two riders wait for the one driver who comes; the earlier one gets the ride, the other one is given up in event time."""
    city, table = City("berlin"), Table()
    take_command(city, table, wanted("later", 2), 0)
    take_command(city, table, wanted("sooner", 1), 1)
    take_positions(city, table, [at("d", 3)], 0)
    assert (table.rows["sooner"].driver_id, table.rows["later"].status) == ("d", Status.WAITING)
    seconds = (matching.WAITS_AT_MOST / SECOND) + 3
    take_positions(city, table, [at("d", seconds, ride_id="sooner")], 0)
    assert table.rows["later"].status is Status.EXPIRED


def test_a_driver_who_does_not_set_off_loses_the_ride() -> None:
    """Who goes on reporting without the ride, or not at all, is passed over for the next one; who is on the way keeps it."""
    city, table = City("berlin"), Table()
    take_positions(city, table, [at("near", 0), at("far", 0, lat=52.53)], 0)
    take_command(city, table, wanted("r"), 0)
    assert table.rows["r"].driver_id == "near"
    silence = UNSEEN_AFTER / SECOND + 1
    take_positions(city, table, [at("near", silence), at("far", silence, lat=52.53)], 0)
    assert (table.rows["r"].driver_id, table.rows["r"].declined) == ("far", ["near"])
    take_positions(city, table, [at("far", 1.5 * silence, ride_id="r", lat=52.53)], 0)
    take_positions(city, table, [at("far", 2 * silence, ride_id="r", lat=52.53)], 0)
    assert table.rows["r"].driver_id == "far"


def test_a_full_queue_gives_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many waiting riders a request is answered at once."""
    monkeypatch.setattr("gettaxi.city.WAITING_MOST", 2)
    city, table = City("berlin"), Table()
    for number in range(4):
        take_command(city, table, wanted(f"r{number}"), number)
    assert Counter(ride.status for ride in table.rows.values()) == {Status.WAITING: 2, Status.EXPIRED: 2}


def test_rides_that_are_over_are_let_go_after_a_day() -> None:
    """Their rows go, so the table stays as large as a day is."""
    city, table = City("berlin"), Table()
    take_command(city, table, wanted("r"), 0)
    ride = table.rows["r"]
    take_command(city, table, Command(ask=Ask.CANCELLED, ride_id="r", city="berlin", at=NOON), 1)
    assert ride.status is Status.WAITING
    take_positions(city, table, [at("d", 3600)], 0)
    assert city.to_forget() == []
    take_positions(city, table, [at("d", 25 * 3600)], 0)
    assert city.to_forget() == ["r"]
    city.follow("r", None)
    assert (city.to_forget(), len(city.over)) == ([], 0)
