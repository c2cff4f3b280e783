"""The HTTP side: rides, prices, positions, and a live map.

Here: routes.
Not here: decisions (`city`, `matching`), tables (`service`), the server, health and metrics (`busway.web`).

| path | what |
|---|---|
| `GET /` | the map; `/city.js` and `/city.css` are its parts |
| `GET /cities` | the cities and their figures |
| `GET /cities/{city}` | a city as it is: figures, drivers, open rides, cells with their price |
| `GET /cities/{city}/live` | the same as server-sent events: first everything, then changes |
| `GET /quote?city=…&lat=…&lng=…` | what a ride from there is multiplied by now |
| `POST /rides` | `{"city", "rider_id", "lat", "lng", "ride_id"?}`: a rider wants a ride; sent twice with one `ride_id` it is one ride |
| `GET /rides/{id}` | a ride |
| `POST /rides/{id}/cancel` | the rider gives it up |
| `POST /rides/{id}/decline` | `{"driver_id"}`: its driver does not want it |
| `POST /riders/positions` | `[{"rider_id", "ride_id", "city", "lat", "lng", "at"?}, …]`: where riders are, up to 1000 |
| `POST /positions` | `[{"driver_id", "city", "lat", "lng", "at"?, "phase"?, "ride_id"?}, …]`: where drivers are, up to 1000 |

Answers are of the rides and cities of the partitions that this instance has. Devices learn of matches from the topic `gettaxi.rides`, where only
decisions are that a crash cannot take back; the page may be some milliseconds ahead of it.
"""

import asyncio
import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from busway import Table, Topic
from busway.web import Refused, application, event_stream, json_response, not_here, read_json
from gettaxi import geo, matching
from gettaxi.events import Ask, Command, Phase, Position, Ride, RiderPosition, Status, Surge
from gettaxi.surge import PLAIN_PERCENT

if TYPE_CHECKING:
    from gettaxi.city import City
    from gettaxi.service import Cities

PAGE = Path(__file__).parent / "page.html"
MODULES = {"city.js": "text/javascript", "city.css": "text/css"}
POSITIONS_MOST = 1000
LAST_ENDED = 14
"""Rides that a new page is shown although they are over."""
LIVE_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request for a ride; see `Command`."""

    city: str
    rider_id: str
    lat: float
    lng: float
    ride_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declining:
    """Who does not want a ride."""

    driver_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where a driver is; see `Position`."""

    driver_id: str
    city: str
    lat: float
    lng: float
    at: dt.datetime | None = None
    phase: Phase = Phase.FREE
    ride_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RiderReport:
    """Where a rider is; see `RiderPosition`."""

    rider_id: str
    ride_id: str
    city: str
    lat: float
    lng: float
    at: dt.datetime | None = None


RiderReports = Annotated[list[RiderReport], msgspec.Meta(min_length=1, max_length=POSITIONS_MOST)]
Reports = Annotated[list[Report], msgspec.Meta(min_length=1, max_length=POSITIONS_MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Where events go."""

    positions: Topic[str, Position]
    rider_positions: Topic[str, RiderPosition]
    commands: Topic[str, Command]


class _Sender:
    """Puts events into their topics, once they are found to make sense."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def command(self, command: Command) -> Response:
        try:
            matching.check_command(command, key=command.city, recorded_at=dt.datetime.now(dt.UTC))
        except (matching.Impossible, geo.OffTheMap) as problem:
            raise Refused(422, str(problem)) from None
        done = await self._topics.commands.send(command, command.city)
        return json_response({"ride_id": command.ride_id, "partition": done.partition, "offset": done.offset}, 202)

    async def reports(self, reports: list[Report]) -> Response:
        return await self._all(reports, self._topics.positions, Position, matching.check_position)

    async def rider_reports(self, reports: list[RiderReport]) -> Response:
        return await self._all(reports, self._topics.rider_positions, RiderPosition, matching.check_rider_position)

    @staticmethod
    async def _all(
        reports: Sequence[Any], topic: Topic[str, Any], kind: type[Any], check: Callable[..., Any]
    ) -> Response:
        """Send all of them, or none where one makes no sense; the error names its place in the list."""
        now = dt.datetime.now(dt.UTC)
        checked = []
        for number, report in enumerate(reports):
            if report.at is not None and report.at.tzinfo is None:
                raise Refused(422, f"[{number}].at has no offset from UTC; write it as 2026-06-01T12:00:00Z")
            position = kind(**{**asdict(report), "at": report.at or now})
            try:
                checked.append(check(position, key=position.city, recorded_at=now))
            except (matching.Impossible, geo.OffTheMap) as problem:
                raise Refused(422, f"[{number}]: {problem}") from None
        await asyncio.gather(*[await topic.send_soon(position, position.city) for position in checked])
        return json_response({"stored": len(checked)}, 202)


def create(cities: "Cities", rides: Table[str, Ride], surges: Table[str, Surge], topics: Topics) -> Starlette:
    """The application over these cities and tables; events go to the three topics."""
    send = _Sender(topics)
    view = _View(cities, rides, surges)

    async def page(request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html")

    async def module(request: Request) -> Response:
        name = request.url.path[1:]
        return FileResponse(PAGE.with_name(name), media_type=MODULES[name], headers={"Cache-Control": "no-cache"})

    async def every(request: Request) -> Response:
        return json_response([view.figures(city) for city in geo.CITIES.values()])

    async def whole(request: Request) -> Response:
        city = _city(request.path_params["city"])
        return json_response({"city": view.figures(city), "changes": view.everything(city.name)})

    async def live(request: Request) -> Response:
        city = _city(request.path_params["city"])
        return event_stream(
            request,
            cities.feed(city.name).listening(),
            key=identity,
            first=lambda: view.everything(city.name),
            pause_s=LIVE_PAUSE_S,
        )

    async def quote(request: Request) -> Response:
        given = request.query_params
        try:
            lat, lng = float(given.get("lat", "")), float(given.get("lng", ""))
            geo.check(given.get("city", ""), lat, lng)
        except geo.OffTheMap as problem:
            raise Refused(422, str(problem)) from None
        except ValueError:
            raise Refused(422, "lat and lng are numbers, in degrees: /quote?city=berlin&lat=52.52&lng=13.40") from None
        row = surges.get(geo.surge_cell(lat, lng))
        return json_response({"surge_percent": PLAIN_PERCENT if row is None else row.percent})

    async def want(request: Request) -> Response:
        given = await read_json(request, Wanted)
        return await send.command(
            Command(
                ask=Ask.REQUESTED,
                ride_id=given.ride_id if given.ride_id is not None else uuid.uuid4().hex,
                city=given.city,
                at=dt.datetime.now(dt.UTC),
                rider_id=given.rider_id,
                lat=given.lat,
                lng=given.lng,
            )
        )

    def known(request: Request) -> Ride:
        ride = rides.get(request.path_params["ride_id"])
        if ride is None:
            ride_id = request.path_params["ride_id"]
            if len(rides.held) < (
                topics.positions.partitions or 0
            ):  # a ride is with its city, which its id does not tell
                raise not_here(f"ride {ride_id!r}")
            raise Refused(404, f"there is no ride {ride_id!r}")
        return ride

    async def ride(request: Request) -> Response:
        return json_response(known(request))

    async def cancel(request: Request) -> Response:
        ride = known(request)
        if ride.status not in {Status.WAITING, Status.MATCHED}:
            raise Refused(409, f"ride {ride.ride_id} is {ride.status.value}; it can be cancelled until it begins")
        return await send.command(
            Command(ask=Ask.CANCELLED, ride_id=ride.ride_id, city=ride.city, at=dt.datetime.now(dt.UTC))
        )

    async def decline(request: Request) -> Response:
        ride, driver_id = known(request), (await read_json(request, Declining)).driver_id
        if ride.status is not Status.MATCHED or ride.driver_id != driver_id:
            raise Refused(409, f"ride {ride.ride_id} is {ride.status.value} and not matched with driver {driver_id!r}")
        at = dt.datetime.now(dt.UTC)
        return await send.command(
            Command(ask=Ask.DECLINED, ride_id=ride.ride_id, city=ride.city, at=at, driver_id=driver_id)
        )

    async def report(request: Request) -> Response:
        return await send.reports(await read_json(request, Reports))

    async def report_riders(request: Request) -> Response:
        return await send.rider_reports(await read_json(request, RiderReports))

    return application(
        [
            Route("/", page),
            *(Route(f"/{name}", module) for name in MODULES),
            Route("/cities", every),
            Route("/cities/{city}", whole),
            Route("/cities/{city}/live", live),
            Route("/quote", quote),
            Route("/rides", want, methods=["POST"]),
            Route("/rides/{ride_id}", ride),
            Route("/rides/{ride_id}/cancel", cancel, methods=["POST"]),
            Route("/rides/{ride_id}/decline", decline, methods=["POST"]),
            Route("/positions", report, methods=["POST"]),
            Route("/riders/positions", report_riders, methods=["POST"]),
        ]
    )


def _city(name: str) -> geo.City:
    city = geo.CITIES.get(name)
    if city is None:
        raise Refused(404, f"there is no city {name!r}; there is {', '.join(sorted(geo.CITIES))}")
    return city


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A cell of the map with its price; see `Surge`. One that has no price any more comes once with the plain one."""

    cell: str
    percent: int
    demand: int
    supply: int
    outline: list[tuple[float, float]]


def tile(cell: str, row: Surge | None) -> Tile:
    """A cell as the page draws it."""
    if row is None:
        return Tile(cell=cell, percent=PLAIN_PERCENT, demand=0, supply=0, outline=geo.outline(cell))
    return Tile(cell=cell, percent=row.percent, demand=row.demand, supply=row.supply, outline=geo.outline(cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A driver as the page draws it."""

    driver_id: str
    lat: float
    lng: float
    state: str


Change: TypeAlias = Position | Ride | Tile | Place
"""What the page gets: the events as they are in the topics; of drivers that were there before it came, their place."""


def identity(change: Change) -> tuple[str, str]:
    """What a change is of; the page wants the newest only."""
    if isinstance(change, Tile):
        return "cell", change.cell
    if isinstance(change, Ride):
        return "ride", change.ride_id
    return "driver", change.driver_id


class _View:
    """What the page is shown."""

    def __init__(self, cities: "Cities", rides: Table[str, Ride], surges: Table[str, Surge]) -> None:
        self._cities = cities
        self._rides = rides
        self._surges = surges

    def _here(self, name: str) -> "City | None":
        return next((city for city in self._cities if city.name == name), None)

    def figures(self, city: geo.City) -> dict[str, Any]:
        """A city in figures; without any while it is another instance's."""
        figures: dict[str, Any] = {
            "name": city.name,
            "lat": city.lat,
            "lng": city.lng,
            "radius_km": city.radius_km,
            "here": False,
        }
        here = self._here(city.name)
        if here is None:
            return figures
        return figures | {
            "here": True,
            "now": here.drivers.now,
            "positions": here.positions,
            "drivers": len(here.drivers.seen),
            "free": here.drivers.idle,
            "waiting": len(here.waiting),
            "matched": len(here.matched),
            "on_ride": len(here.on_ride),
            "ended": here.ended,
            "given_up": len(here.over) - here.ended,
            "fares_cents": here.fares_cents,
            "distance_m": here.distance_mm // 1000,
            "late": here.windows.late if here.windows is not None else 0,
        }

    def everything(self, name: str) -> list[Change]:
        """A city as it is."""
        changes: list[Change] = [tile(row.cell, row) for row in self._surges.values() if row.city == name]
        if (city := self._here(name)) is not None:
            for driver_id, seen in city.drivers.seen.items():
                busy = "busy" if city.drivers.rides_of(driver_id) else "silent"
                state = "free" if city.drivers.is_free(driver_id) else busy
                changes.append(Place(driver_id=driver_id, lat=seen.lat, lng=seen.lng, state=state))
            changes += reversed([*islice(reversed(city.over.values()), LAST_ENDED)])
        return changes + [ride for ride in self._rides.values() if ride.city == name and ride.status in matching.OPEN]
