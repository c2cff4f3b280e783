"""A demo's page: the application's own view, the bus beside it, and buttons that kill.

Here: its HTTP server, which stays while parts are killed; what the service serves is passed through.
Not here: what the page shows (`demo.html` of a case study), reading the bus (`monitor`), killing (`kills`).

| path | content |
|---|---|
| `GET /` | the page |
| `GET /bus` | the state as JSON |
| `GET /bus/live` | the same as server-sent events |
| `POST /kill/{part}` | kill -9 and restart; needs the header `X-Demo`, which no other site's form can send |
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from busway.web import Feed, Refused, application, event_stream, json_response
from busway.web.server import closing_of
from kit.kills import Busy, Kills

PUSH_S: Final = 0.5
RETRY_S: Final = 0.3
"""Between two tries to reach a service that is away."""
_MEDIA_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class Cockpit:
    """The application of a demo's page.

    Args:
        files: by path, such as `/` or `/demo.js`.
        proxied: paths that the service answers.
        streamed: paths of the service's event streams.
        service: its address.
        state: what the page shows of the bus.
        kills: the parts.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        *,
        proxied: Sequence[str],
        streamed: Sequence[str],
        service: str,
        state: Callable[[], Any],
        kills: Kills,
    ) -> None:
        self._state = state
        self._kills = kills
        self._feed: Feed[Any] = Feed()
        # Streams of a service that is alive are never silent for 30 s.
        self._client = httpx2.AsyncClient(base_url=service, timeout=httpx2.Timeout(5, read=30))
        self.application: Starlette = application(
            [
                *(Route(path, _file(file)) for path, file in files.items()),
                *(Route(path, self._passed) for path in proxied),
                *(Route(path, self._streamed) for path in streamed),
                Route("/bus", self._bus),
                Route("/bus/live", self._live),
                Route("/kill/{part}", self._kill, methods=["POST"]),
            ]
        )

    def changed(self) -> None:
        """Push the state to open pages."""
        self._feed.put(self._state())

    async def run(self) -> None:
        """Push the state until cancelled, then let go of connections."""
        try:
            while True:
                self.changed()
                await asyncio.sleep(PUSH_S)
        finally:
            await self._client.aclose()

    async def _bus(self, request: Request) -> Response:
        return json_response(self._state())

    async def _live(self, request: Request) -> Response:
        return event_stream(request, self._feed.listening(), key=lambda _: 0, first=lambda: [self._state()])

    async def _kill(self, request: Request) -> Response:
        if "x-demo" not in request.headers:
            raise Refused(403, "send the header X-Demo: this page's buttons do")
        part = request.path_params["part"]
        try:
            self._kills.kill(part)
        except KeyError:
            raise Refused(404, f"there is no {part}; there is {', '.join(self._kills.targets)}") from None
        except Busy as busy:
            raise Refused(409, str(busy)) from None
        return json_response({"killed": part}, 202)

    async def _passed(self, request: Request) -> Response:
        try:
            answer = await self._client.get(request.url.path)
        except httpx2.HTTPError:
            raise Refused(503, "the service is away") from None
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _streamed(self, request: Request) -> Response:
        """Pass a stream through; it goes on with the service's next process, behind an event `reset`."""
        closing = closing_of(request)

        async def stream() -> AsyncIterator[bytes]:
            while not closing.is_set():
                with contextlib.suppress(httpx2.HTTPError):
                    async with self._client.stream("GET", request.url.path) as answer:
                        if answer.status_code == 200:
                            yield b"event: reset\ndata: \n\n"
                            async with contextlib.aclosing(_until(answer.aiter_bytes(), closing)) as chunks:
                                async for chunk in chunks:
                                    yield chunk
                if not closing.is_set():
                    # Ends the event that a kill has cut.
                    yield b"\n\nevent: away\ndata: \n\n"
                    await asyncio.sleep(RETRY_S)

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _file(file: Path) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return FileResponse(file, media_type=_MEDIA_TYPES[file.suffix], headers={"Cache-Control": "no-cache"})

    return answer


async def _until(chunks: AsyncIterator[bytes], closing: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Yield chunks until the server stops."""
    closed = asyncio.ensure_future(closing.wait())
    following: asyncio.Future[bytes] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(chunks))
            await asyncio.wait([closed, following], return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                return
            try:
                yield following.result()
            except StopAsyncIteration:
                return
    finally:
        closed.cancel()
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
