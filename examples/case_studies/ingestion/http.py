"""The HTTP side: the newest of each truck, its history from both layers, a live map.

Here: routes.
Not here: the layers (`layers`), rules (`domain`), the server, health and metrics (`busway.web`).

| path | what |
|---|---|
| `GET /` | the location dashboard |
| `GET /trucks`, `GET /trucks/{id}` | the newest, from the stream |
| `GET /trucks/{id}/history?limit=100` | the last positions, from the store and the stream, each once |
| `GET /alerts` | trucks that ran low, each with its last alert |
| `GET /store` | how far the store reaches, and how many positions wait for it |
| `POST /trucks/{id}/positions` | `{"latitude", "longitude", "speed_kmh", "fuel_percent"}`: a truck tells where it is |
| `GET /live` | changes as server-sent events: `[[truck_id, truck], …]` |
"""

import datetime as dt
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from busway import Table, Topic
from busway.web import Refused, application, event_stream, json_response, read_json, row_of
from ingestion import domain
from ingestion.events import LowFuel, Position, Truck
from ingestion.layers import Layers

PAGE = Path(__file__).parent / "page.html"
LIMIT: Final = 100
LIMIT_MOST: Final = 10_000
_LISTENER_QUEUE: Final = 10_000
"""Changes of trucks that wait for one page; more than there are trucks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a truck tells; see `Position`."""

    latitude: float
    longitude: float
    speed_kmh: float
    fuel_percent: float


def create(
    trucks: Table[str, Truck], alerts: Table[str, LowFuel], positions: Topic[str, Position], layers: Layers
) -> Starlette:
    """The application over these tables and layers; positions go to `positions`."""

    async def page(request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html")

    async def every(request: Request) -> Response:
        return json_response(sorted(trucks.values(), key=lambda truck: truck.truck_id))

    def _known(request: Request) -> Truck:
        truck_id = request.path_params["truck_id"]
        return row_of(trucks, truck_id, what=f"{truck_id}; GET /trucks lists those that have sent a position")

    async def truck(request: Request) -> Response:
        return json_response(_known(request))

    async def history(request: Request) -> Response:
        limit = _limit(request)
        history = await layers.history(_known(request).truck_id)
        return json_response(replace(history, entries=history.entries[-limit:]))

    async def low(request: Request) -> Response:
        return json_response(sorted(alerts.values(), key=lambda alert: alert.at, reverse=True))

    async def reaches(request: Request) -> Response:
        waiting = {partition: len(tail) for partition, tail in sorted(layers.recent.items())}
        return json_response({"reaches": layers.snapshot.ends, "files": len(layers.snapshot.files), "waiting": waiting})

    async def tell(request: Request) -> Response:
        reading = asdict(await read_json(request, Reading))
        position = Position(truck_id=request.path_params["truck_id"], at=dt.datetime.now(dt.UTC), **reading)
        try:
            domain.check(position)
        except domain.Impossible as problem:
            raise Refused(422, str(problem)) from None
        done = await positions.send(position, key=position.truck_id)
        return json_response({"partition": done.partition, "offset": done.offset}, 202)

    async def live(request: Request) -> Response:
        return event_stream(request, trucks.changes(_LISTENER_QUEUE), key=lambda change: change[0])

    return application(
        [
            Route("/", page),
            Route("/trucks", every),
            Route("/trucks/{truck_id}", truck),
            Route("/trucks/{truck_id}/history", history),
            Route("/trucks/{truck_id}/positions", tell, methods=["POST"]),
            Route("/alerts", low),
            Route("/store", reaches),
            Route("/live", live),
        ]
    )


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", str(LIMIT))
    if not given.isdecimal() or not 1 <= int(given) <= LIMIT_MOST:
        raise Refused(422, f"limit is {given}; give a whole number from 1 to {LIMIT_MOST}")
    return int(given)
