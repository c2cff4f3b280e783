"""The service on a real bus and registry."""

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from gettaxi import geo, matching, service
from gettaxi.events import Ask, Command, Phase, Position, Ride, Status
from gettaxi.generate import Devices
from gettaxi.tests.stored import stored
from gettaxi.traffic import Plan, Traffic
from tests.support.variants import with_variants

from busway import DeadLetters, Extension, Producer
from busway.app.model.topic import Route
from busway.testing import TestBus, crash_points
from busway.web import serving

pytestmark = pytest.mark.slow
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
CENTRE = geo.CITIES["berlin"]


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


async def report(*positions: Position) -> None:
    """What devices send, stamped with their time as a gateway does."""
    await asyncio.gather(
        *[
            await service.positions.send_soon(position, position.city, timestamp_ms=int(position.at.timestamp() * 1000))
            for position in positions
        ]
    )


async def ask(command: Command) -> None:
    """What a rider or a driver asks for."""
    await service.commands.send(command, command.city, timestamp_ms=int(command.at.timestamp() * 1000))


def at(
    seconds: float, driver_id: str = "d", *, north: float = 0.0, phase: Phase = Phase.FREE, ride: str | None = None
) -> Position:
    """A driver so many degrees north of Berlin's centre."""
    time = NOON + dt.timedelta(seconds=seconds)
    return Position(
        driver_id=driver_id, city="berlin", lat=CENTRE.lat + north, lng=CENTRE.lng, at=time, phase=phase, ride_id=ride
    )


def wanted(ride_id: str, seconds: float = 0.0) -> Command:
    """A rider in the centre of Berlin."""
    return Command(
        ask=Ask.REQUESTED,
        ride_id=ride_id,
        city="berlin",
        at=NOON + dt.timedelta(seconds=seconds),
        rider_id="u",
        lat=CENTRE.lat,
        lng=CENTRE.lng,
    )


def traffic(seed: int, *, drivers: int = 8, city: str = "tallinn") -> Traffic:
    """A small town."""
    plan = Plan(city=city, drivers=drivers, rides_per_minute=14, seed=seed, start=NOON, half_m=750, longest_m=700)
    return Traffic(plan)


def devices(*towns: Traffic) -> Devices:
    """Their devices, on the bus of the test."""
    return Devices(towns, bootstrap_servers=service.app.bootstrap_servers, schema_registry=service.app.schema_registry)


async def drive(load: Devices, seconds: int) -> None:
    """Riders for so long, in event time, then their rides to the end."""
    towns = list(load.traffic.values())
    until = towns[0].now + dt.timedelta(seconds=seconds)
    await load.run(speed=None, until=lambda: towns[0].now >= until)


async def drive_to_the_end(load: Devices) -> None:
    """No new riders; the rides that there are end."""
    towns = list(load.traffic.values())
    for town in towns:
        town.requests = False
    limit = towns[0].now + dt.timedelta(hours=1)
    await load.run(speed=None, until=lambda: not load.open or towns[0].now > limit)


async def test_a_ride_from_the_request_to_the_fare(bus: TestBus) -> None:
    """The closest free driver is matched; the meter starts with the rider in the car and stops with the drop-off; the fare is 3.00 and
    the way and the time."""
    await report(at(0, "far", north=0.02), at(0, "near", north=0.01))
    await bus.settle()
    await ask(wanted("r"))
    await bus.settle()
    assert (service.rides["r"].status, service.rides["r"].driver_id) == (Status.MATCHED, "near")
    way = [
        at(10, "near", north=0.005, phase=Phase.TO_PICKUP, ride="r"),
        at(20, "near", phase=Phase.PICKED_UP, ride="r"),
        at(50, "near", north=0.005, phase=Phase.ON_RIDE, ride="r"),
        at(80, "near", north=0.01, phase=Phase.DROPPED_OFF, ride="r"),
        at(81, "near", north=0.02, phase=Phase.ON_RIDE, ride="r"),
    ]
    await report(*way)
    await bus.settle()
    ride = service.rides["r"]
    metres = 2 * 555.97
    assert ride.meter.distance_mm == pytest.approx(metres * 1000, abs=20)
    assert (ride.status, ride.meter.positions) == (Status.ENDED, 3)
    assert ride.fare_cents == round(300 + 150 * metres / 1000 + 30 * 1)
    assert {city.name: city.drivers.is_free("near") for city in service.cities} == {"berlin": True}


async def test_a_request_that_comes_twice_is_one_ride_and_a_driver_may_decline(bus: TestBus) -> None:
    """The next closest driver gets a declined ride; a cancelled one frees its driver for who waits."""
    await report(at(0, "near", north=0.01), at(0, "far", north=0.02))
    await bus.settle()
    for _ in range(2):
        await ask(wanted("r"))
    await ask(Command(ask=Ask.DECLINED, ride_id="r", city="berlin", at=NOON, driver_id="near"))
    for number in range(2):
        await ask(wanted(f"other{number}"))
    await bus.settle()
    assert {ride.ride_id: ride.driver_id for ride in service.rides.values()} == {
        "r": "far",
        "other0": "near",
        "other1": None,
    }
    await ask(Command(ask=Ask.CANCELLED, ride_id="r", city="berlin", at=NOON))
    await bus.settle()
    assert {ride.ride_id: ride.driver_id for ride in service.rides.values()} == {
        "r": None,
        "other0": "near",
        "other1": "far",
    }


async def test_drivers_who_are_given_back_are_taken_behind_that_in_the_topic(bus: TestBus) -> None:
    """Two silent drivers lose their rides and get each other's: in no beginning of the topic has one of them two."""
    await report(at(0, "one", north=0.01), at(0, "other", north=0.02))
    await bus.settle()
    await ask(wanted("r1"))
    await ask(wanted("r2"))
    await bus.settle()
    await report(at(70, "one", north=0.01), at(70, "other", north=0.02))
    await bus.settle()
    newest: dict[str, str | None] = {}
    for record in await bus.records(service.rides.topic):
        assert record.value is not None
        newest[record.value.ride_id] = record.value.driver_id
        busy = [driver_id for driver_id in newest.values() if driver_id is not None]
        assert len(busy) == len(set(busy)), newest
    assert newest == {"r1": "other", "r2": "one"}


@pytest.mark.parametrize("point", with_variants(crash_points(), gate=["before-commit"]))
async def test_killed_at_any_step_every_ride_ends_once_at_its_price(bus: TestBus, point: str) -> None:
    """Killed twice in the middle of traffic at that step: every ride that was asked for is known and ends, no driver ever has two, every
    fare is what the stored positions say."""
    load = devices(traffic(seed=1))
    async with load.running():
        for _ in range(2):
            await drive(load, 30)
            crash = bus.crash(at=point)
            await drive(load, 5)
            await crash
        await drive_to_the_end(load)
        await bus.settle()
        written = await stored(load)
    (town,) = load.traffic.values()
    assert written.positions == load.positions
    assert written.rides.keys() == town.rides.keys()
    assert written.count(Status.ENDED) == len(
        town.dropped_off - {ride_id for ride_id, ride in written.rides.items() if ride.status is Status.CANCELLED}
    )
    assert written.count(Status.ENDED) > 5
    assert (written.twice, written.differ, load.open) == (0, 0, 0)


class Asked(Extension):
    """Tells when a command is about to be handled, and keeps a batch of positions, once handled, from being written until then."""

    def __init__(self) -> None:
        self.armed = False
        self.asked = asyncio.Event()

    def around(self, route: Route, call: Any) -> Any:
        """Outside of all others for commands."""

        async def called(given: Any) -> Any:
            if route.batch is None:
                self.asked.set()
            return await call(given)

        return called


class Held(Extension):
    """Inside of all others: the handler of positions has returned, its rows are not written yet."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.returned = asyncio.Event()

    def around(self, route: Route, call: Any) -> Any:
        """Lets a command have its turns in between."""

        async def called(given: Any) -> Any:
            result = await call(given)
            if route.batch is not None and self._asked.armed:
                self.returned.set()
                await self._asked.asked.wait()
                for _ in range(50):
                    await asyncio.sleep(0)
            return result

        return called


async def test_what_a_decision_rests_on_is_written_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of a ride that has ended is slow to be written; the next ride of that driver comes behind it in the topic all the same, so that
    a crash in between leaves no driver with two."""
    asked = Asked()
    held = Held(asked)
    monkeypatch.setattr(service.app, "extensions", [asked, *service.app.extensions, held])
    async with service.app.test() as bus:
        await report(at(0))
        await bus.settle()
        await ask(wanted("first"))
        await bus.settle()
        await report(at(1, phase=Phase.PICKED_UP, ride="first"))
        await bus.settle()
        asked.asked.clear()
        asked.armed = True
        await report(at(2, phase=Phase.DROPPED_OFF, ride="first"))
        await held.returned.wait()
        await ask(wanted("second"))
        await bus.settle()
        rides = [record.value for record in await bus.records(service.rides.topic)]
    states = [(ride.ride_id, ride.status.name, ride.driver_id) for ride in rides if ride is not None][-2:]
    assert states == [("first", "ENDED", "d"), ("second", "MATCHED", "d")]


async def test_a_killed_broker_loses_no_ride(bus: TestBus) -> None:
    """The broker is killed under running traffic and comes back: everything is as if it had not been."""
    load = devices(traffic(seed=2), traffic(seed=2, city="lisbon"))
    async with load.running():
        await drive(load, 40)
        await bus.crash_broker()
        await drive(load, 20)
        await drive_to_the_end(load)
        await bus.settle()
        written = await stored(load)
    assert written.rides.keys() == {ride_id for traffic in load.traffic.values() for ride_id in traffic.rides}
    assert (written.twice, written.differ, load.open) == (0, 0, 0)


async def test_the_surge_is_published_and_fixed_at_the_request(bus: TestBus) -> None:
    """Three requests and one driver in a minute: the cell's price rises when the window is complete, the next ride there costs that much,
    and falls when no rider asks any more."""
    await report(at(0), at(10))
    for number in range(4):
        await ask(wanted(f"r{number}", 11))
    await report(at(12), at(85))
    await bus.settle()
    cell = geo.surge_cell(CENTRE.lat, CENTRE.lng)
    row = service.surges[cell]
    assert (row.demand, row.supply, row.percent, row.window_end) == (4, 1, 170, NOON + dt.timedelta(seconds=70))
    await ask(wanted("dear", 86))
    await bus.settle()
    assert service.rides["dear"].surge_percent == 170
    await report(at(400))
    await bus.settle()
    assert cell not in service.surges


async def test_impossible_events_are_put_aside_and_replayed_after_a_fix(
    bus: TestBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its reason, while others of its batch go on; once a city is on the map, its replayed position counts."""
    potsdam = replace(at(1, "p"), city="potsdam", lat=52.4, lng=13.06)
    await report(at(0), replace(at(1, "x"), lat=10.0), potsdam, at(1, "y"))
    await ask(Command(ask=Ask.CANCELLED, ride_id="nobody's", city="berlin", at=NOON))
    await bus.settle()
    reasons = sorted(letter.error for letter in await bus.dead_letters(service.positions))
    assert [reason.partition(";")[0] for reason in reasons] == [
        "OffTheMap: city is 'potsdam'",
        "OffTheMap: lat 10.0, lng 13.405 is 4728 km from the centre of berlin, whose map ends at 25 km",
    ]
    (letter,) = await bus.dead_letters(service.commands)
    assert (letter.attempts, letter.error) == (1, 'Impossible: ride_id is "nobody\'s"; there is no such ride in berlin')
    monkeypatch.setitem(geo.CITIES, "potsdam", geo.City(name="potsdam", lat=52.4, lng=13.06, radius_km=10))
    async with DeadLetters(bus.app.bootstrap_servers) as letters:
        (topic,) = [name for name in await letters.topics() if "positions" in name]
        await letters.replay(topic)
    await bus.settle()
    seen = {city.name: sorted(city.drivers.seen) for city in service.cities}
    assert seen == {"berlin": ["d", "y"], "potsdam": ["p"]}


async def test_undecodable_events_are_put_aside(bus: TestBus) -> None:
    """Bytes that are no event of the topic go to the dead letters; those around them are handled."""
    await report(at(0))
    async with Producer(bus.app.bootstrap_servers) as producer:
        await producer.send_and_wait("gettaxi.positions", key=b"berlin", value=b"rubbish")
    await report(at(1, "y"))
    await bus.settle()
    assert len(await bus.dead_letters(service.positions)) == 1
    assert [len(city.drivers.seen) for city in service.cities] == [2]


async def test_over_http(bus: TestBus) -> None:
    """A driver reports, a rider gets a quote and a ride, it is declined and cancelled; what makes no sense is refused with the reason."""
    async with serving(service.web) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/city.js")).headers["content-type"].startswith("text/javascript")
        place: dict[str, Any] = {"city": "berlin", "lat": CENTRE.lat, "lng": CENTRE.lng}
        assert (await client.post("/positions", json=[{"driver_id": "d", **place}])).json() == {"stored": 1}
        await bus.settle()
        assert (await client.get("/quote", params=place)).json() == {"surge_percent": 100}
        done = await client.post("/rides", json={"rider_id": "u", **place})
        ride_id = done.json()["ride_id"]
        assert done.status_code == 202
        await bus.settle()
        ride = (await client.get(f"/rides/{ride_id}")).json()
        assert (ride["status"], ride["driver_id"], ride["surge_percent"]) == ("MATCHED", "d", 100)
        berlin = next(city for city in (await client.get("/cities")).json() if city["name"] == "berlin")
        assert (berlin["here"], berlin["drivers"], berlin["matched"]) == (True, 1, 1)
        waits = {"rider_id": "u", "ride_id": ride_id, **place}
        assert (await client.post("/riders/positions", json=[waits, waits])).json() == {"stored": 2}
        positions = [record.value for record in await bus.records(service.rider_positions)]
        assert [
            (position.rider_id, position.ride_id, position.lat) for position in positions if position is not None
        ] == [("u", ride_id, CENTRE.lat)] * 2
        assert (await client.post(f"/rides/{ride_id}/decline", json={"driver_id": "d"})).status_code == 202
        await bus.settle()
        assert (await client.post(f"/rides/{ride_id}/cancel")).status_code == 202
        await bus.settle()
        changes = (await client.get("/cities/berlin")).json()["changes"]
        assert [change.get("state") or change.get("status") for change in changes] == ["free", "CANCELLED"]
        refused: list[tuple[str, str, Any, int, str]] = [
            ("POST", f"/rides/{ride_id}/cancel", None, 409, "is CANCELLED"),
            ("POST", f"/rides/{ride_id}/decline", {"driver_id": "d"}, 409, "not matched with driver 'd'"),
            ("POST", f"/rides/{ride_id}/decline", {}, 422, "driver_id"),
            ("POST", "/rides", {"rider_id": "u", **place, "lat": 1}, 422, "km from the centre"),
            ("POST", "/rides", {"rider_id": "", **place}, 422, "rider_id is missing"),
            ("POST", "/rides", {"rider_id": "u", **place, "lng": "east"}, 422, "lng: Expected `float`"),
            ("POST", "/rides", place, 422, "rider_id"),
            ("POST", "/positions", [], 422, "length >= 1"),
            ("POST", "/positions", [{"driver_id": "d", **place, "phase": "ASLEEP"}], 422, "[0].phase"),
            ("POST", "/positions", [{"driver_id": "d", **place, "at": "2999-01-01T00:00:00Z"}], 422, "clock"),
            ("POST", "/positions", [{"driver_id": "d", **place, "at": "2026-01-01T00:00:00"}], 422, "[0].at"),
            ("POST", "/riders/positions", [{"rider_id": "u", **place}], 422, "ride_id"),
            ("POST", "/riders/positions", [{**waits, "rider_id": ""}], 422, "rider_id is empty"),
            ("POST", "/riders/positions", [waits, {**waits, "lat": 1}], 422, "[1]: lat 1.0"),
            ("GET", "/quote?city=berlin", None, 422, "are numbers"),
            ("GET", "/quote?city=atlantis&lat=1&lng=1", None, 422, "'atlantis'"),
            ("GET", "/rides/unknown", None, 404, "no ride 'unknown'"),
            ("GET", "/cities/atlantis", None, 404, "there is amsterdam"),
        ]
        for method, path, body, status, text in refused:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, text in answer.json()["error"]) == (status, True), (path, body, answer.text)
        assert "GetTaxi" in (await client.get("/")).text


async def test_the_page_hears_of_changes(bus: TestBus) -> None:
    """First everything, then positions and rides as they come."""
    await report(at(0))
    await bus.settle()
    async with (
        serving(service.web) as url,
        httpx2.AsyncClient(base_url=url) as client,
        client.stream("GET", "/cities/berlin/live") as live,
    ):
        heard = (json.loads(line[6:]) async for line in live.aiter_lines() if line.startswith("data: "))
        assert [change["state"] for change in await anext(heard)] == ["free"]
        await ask(wanted("r"))
        assert [change["driver_id"] for change in await anext(heard) if "status" in change] == ["d"]
        await report(at(2, north=0.001))
        assert [change["at"] for change in await anext(heard)] == ["2026-06-01T12:00:02Z"]


async def test_rows_are_read_back_after_a_restart(bus: TestBus) -> None:
    """Rides, who is busy, who waits and the price survive; where drivers are is reported again."""
    await report(at(0))
    await bus.settle()
    await ask(wanted("r"))
    await ask(wanted("waits", 1))
    await bus.settle()
    before: dict[str, Ride] = dict(service.rides)
    await bus.restart()
    assert dict(service.rides) == before
    await report(at(2, "d", phase=Phase.TO_PICKUP, ride="r"))
    await bus.settle()
    assert service.rides["waits"].status is Status.WAITING
    await report(at(3, "new"))
    await bus.settle()
    assert (service.rides["r"].driver_id, service.rides["waits"].driver_id) == ("d", "new")
    assert {ride.status for ride in service.rides.values()} | {Status.ON_RIDE} == matching.BUSY
