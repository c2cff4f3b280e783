"""The HTTP side: profiles as JSON and as a live page, and events from viewers.

What lives here: routes, the event stream, starting and stopping the server. What does not: profiles (`service`), rules (`domain`).

| path | what |
|---|---|
| `GET /` | the page |
| `GET /profiles`, `GET /users/{id}` | profiles |
| `GET /users/{id}/resume` | where to go on, newest first, on whatever device |
| `POST /users/{id}/watched` | `{"movie_id", "position_s", "length_s", …}`: a device tells how far the viewer is |
| `GET /live` | changed profiles as server-sent events |
| `GET /health` | 200 as long as it lives |
"""

import asyncio
import contextlib
import datetime as dt
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from busway import BuswayError, Topic
from movieflix import domain
from movieflix.events import Action, Profile, Watched

if TYPE_CHECKING:
    from movieflix.service import Profiles

PAGE = Path(__file__).parent / "page.html"
_BREATHE_S = 15.0


def create(profiles: "Profiles", watched: Topic[int, Watched]) -> Starlette:
    """The application over these profiles; events go to `watched`."""
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/health", _health),
            Route("/profiles", _profiles),
            Route("/users/{user_id:int}", _user),
            Route("/users/{user_id:int}/resume", _resume),
            Route("/users/{user_id:int}/watched", _watch, methods=["POST"]),
            Route("/live", _live),
        ]
    )
    app.state.profiles, app.state.watched = profiles, watched
    return app


async def _page(request: Request) -> Response:
    return FileResponse(PAGE, media_type="text/html")


async def _health(request: Request) -> Response:
    return JSONResponse({"users": len(request.app.state.profiles.by_user)})


async def _profiles(request: Request) -> Response:
    found = sorted(request.app.state.profiles.by_user.values(), key=lambda one: one.user_id)
    return _json(found)


async def _user(request: Request) -> Response:
    found = request.app.state.profiles.by_user.get(request.path_params["user_id"])
    if found is None:
        return _refusal(404, f"nothing is known of user {request.path_params['user_id']}")
    return _json(found)


async def _resume(request: Request) -> Response:
    return _json(request.app.state.profiles.get(request.path_params["user_id"]).resume)


async def _watch(request: Request) -> Response:
    try:
        found = json.loads(await request.body())
        if not isinstance(found, dict):
            raise TypeError("the body is a JSON object")
        event = Watched(
            user_id=request.path_params["user_id"],
            movie_id=int(found["movie_id"]),
            action=Action(str(found.get("action", "PLAYING")).upper()),
            position_s=int(found["position_s"]),
            length_s=int(found["length_s"]),
            played_s=int(found.get("played_s", 0)),
            device=str(found.get("device", "web")),
            at=dt.datetime.now(dt.UTC),
            rating=float(found["rating"]) if found.get("rating") is not None else None,
        )
        domain.check(event)
    except KeyError as missing:
        return _refusal(422, f"the field {missing.args[0]} is missing")
    except (ValueError, TypeError) as problem:
        return _refusal(422, str(problem))
    try:
        done = await request.app.state.watched.send(event, key=event.user_id)
    except BuswayError as problem:
        return _refusal(503, str(problem))
    return JSONResponse({"partition": done.partition, "offset": done.offset}, 202)


async def _live(request: Request) -> Response:
    async def stream() -> AsyncIterator[str]:
        with request.app.state.profiles.listening() as queue:
            yield "retry: 1000\n\n"
            while not request.app.state.closing.is_set():
                try:
                    changed: list[Profile] = [await asyncio.wait_for(queue.get(), _BREATHE_S)]
                except TimeoutError:
                    yield ": nothing new\n\n"
                    continue
                while not queue.empty():
                    changed.append(queue.get_nowait())
                newest = {one.user_id: one for one in changed}
                yield f"data: {msgspec.json.encode(list(newest.values())).decode()}\n\n"
                await asyncio.sleep(0.1)  # ten pictures a second are enough for an eye

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _json(found: Any) -> Response:
    return Response(msgspec.json.encode(found), media_type="application/json")


def _refusal(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


class _Server(uvicorn.Server):
    """Signals are the app's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: Starlette, port: int) -> AsyncIterator[str]:
    """The application on this port of the loopback address; yields its address."""
    app.state.closing = asyncio.Event()
    bound = socket.create_server(("127.0.0.1", port))
    server = _Server(
        uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    )
    task = asyncio.ensure_future(server.serve([bound]))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        app.state.closing.set()
        server.should_exit = True
        await task
