"""The HTTP side: profiles as JSON and as a live page, and events from viewers.

Here: routes.
Not here: profiles (`service`), rules (`domain`), the server, health and metrics (`busway.web`).

| path | what |
|---|---|
| `GET /` | the page |
| `GET /profiles`, `GET /users/{id}` | profiles |
| `GET /users/{id}/resume` | where to go on, newest first, on whatever device |
| `GET /users/{id}/next?count=10` | what to see next, by the newest model; never what was seen |
| `GET /users/{id}/next/live` | the same as server-sent events, whenever it changes |
| `GET /model` | which model is served |
| `GET /titles` | titles of movies; that of movie 0 first |
| `POST /users/{id}/watched` | `{"movie_id", "position_s", "length_s", …}`: a device tells how far the viewer is |
| `GET /live` | changes as server-sent events: `[[user, profile], …]`, null for a profile that has gone to another instance |
"""

import datetime as dt
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from busway import Table, Topic
from busway.web import Refused, application, event_stream, json_response, not_here, read_json, row_of
from movieflix import domain
from movieflix.events import Action, Profile, Watched
from movieflix.recommend import COUNT_MOST
from movieflix.recommender import PUSHED, Recommender
from movieflix.titles import titles

PAGE = Path(__file__).parent / "page.html"
NUMBER_MOST = 2**63 - 1
"""The largest number of a user, a movie or seconds: what Avro's long holds."""
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a device tells; see `Watched`."""

    movie_id: Number
    position_s: Number
    length_s: Number
    action: Action = Action.PLAYING
    played_s: Number = 0
    device: str = "web"
    rating: float | None = None


def create(profiles: Table[int, Profile], watched: Topic[int, Watched], recommender: Recommender) -> Starlette:
    """The application over these profiles and recommendations; events go to `watched`."""

    async def page(request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html")

    async def every(request: Request) -> Response:
        return json_response(sorted(profiles.values(), key=lambda profile: profile.user_id))

    async def user(request: Request) -> Response:
        user_id = _user(request)
        return json_response(row_of(profiles, user_id, what=f"user {user_id}"))

    async def resume(request: Request) -> Response:
        user_id = _here(request)
        profile = profiles.get(user_id)
        return json_response(profile.resume if profile is not None else [])

    async def upcoming(request: Request) -> Response:
        return json_response(recommender.next_of(_here(request), _count(request)))

    async def upcoming_live(request: Request) -> Response:
        user_id = _here(request)
        listening = recommender.listening(user_id)
        return event_stream(request, listening, key=lambda _: user_id, first=lambda: [recommender.next_of(user_id)])

    async def served(request: Request) -> Response:
        served = recommender.served
        return json_response(
            {"version": None} if served is None else {"version": served.version, **asdict(served.complete)}
        )

    async def names(request: Request) -> Response:
        return json_response(titles())

    async def watch(request: Request) -> Response:
        position = asdict(await read_json(request, Position))
        event = Watched(user_id=_user(request), at=dt.datetime.now(dt.UTC), **position)
        try:
            domain.check(event)
        except domain.Impossible as problem:
            raise Refused(422, str(problem)) from None
        done = await watched.send(event, key=event.user_id)
        return json_response({"partition": done.partition, "offset": done.offset}, 202)

    async def live(request: Request) -> Response:
        return event_stream(request, profiles.changes(), key=lambda change: change[0])

    def _here(request: Request) -> int:
        """The viewer asked for, if this instance would know them: who is new to everybody has seen nothing yet."""
        user_id = _user(request)
        if not profiles.covers(user_id):
            raise not_here(f"user {user_id}")
        return user_id

    return application(
        [
            Route("/", page),
            Route("/profiles", every),
            Route("/users/{user_id:int}", user),
            Route("/users/{user_id:int}/resume", resume),
            Route("/users/{user_id:int}/next", upcoming),
            Route("/users/{user_id:int}/next/live", upcoming_live),
            Route("/model", served),
            Route("/titles", names),
            Route("/users/{user_id:int}/watched", watch, methods=["POST"]),
            Route("/live", live),
        ]
    )


def _user(request: Request) -> int:
    user_id: int = request.path_params["user_id"]
    if user_id > NUMBER_MOST:
        raise Refused(422, f"user_id is {user_id:.3e}; give a whole number from 0 to {NUMBER_MOST}")
    return user_id


def _count(request: Request) -> int:
    given = request.query_params.get("count", str(PUSHED))
    if not given.isdecimal() or not 1 <= int(given) <= COUNT_MOST:
        raise Refused(422, f"count is {given}; give a whole number from 1 to {COUNT_MOST}")
    return int(given)
