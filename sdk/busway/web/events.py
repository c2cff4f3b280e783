"""Server-sent events.

Here: the streaming response.
Not here: distribution of changes (`busway.app.feed`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from busway.web.server import closing_of

T = TypeVar("T")
KEEP_ALIVE_S: Final = 15.0
"""Proxies close connections silent for longer, many after 30 or 60 s."""
PAUSE_S: Final = 0.1
"""Ten updates a second are enough for an eye."""


def event_stream(
    request: Request,
    listening: "AbstractContextManager[asyncio.Queue[T]]",
    *,
    key: Callable[[T], Hashable] | None = None,
    first: Callable[[], Any] | None = None,
    pause_s: float = PAUSE_S,
    keep_alive_s: float = KEEP_ALIVE_S,
) -> Response:
    """Stream a queue's changes as `data:` lines with a JSON array each; a comment keeps a quiet stream alive.

    Changes during a pause are merged. The stream ends when the client disconnects or the server stops.

    Args:
        listening: entered at the stream's start, left at its end; such as `Feed.listening()` or `Table.changes()`.
        key: of merged changes only the newest of each key is sent.
        first: its result is the first event; called after `listening` was entered, so that no change is missed.
        pause_s: between events.
        keep_alive_s: between comments.
    """

    async def stream() -> AsyncIterator[bytes]:
        closing = closing_of(request)
        with listening as queue:
            yield b"retry: 1000\n\n"
            if first is not None:
                yield _event(first())
            while not closing.is_set():
                changes = await _next(queue, closing, keep_alive_s)
                if closing.is_set():
                    return
                yield _event(_newest(changes, key)) if changes else b": nothing new\n\n"
                if changes:
                    await _within(closing.wait(), pause_s)

    return StreamingResponse(
        stream(),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _next(queue: "asyncio.Queue[T]", closing: asyncio.Event, wait_s: float) -> list[T]:
    changes: list[T] = []
    if queue.empty():
        arrived = asyncio.ensure_future(queue.get())
        stop = asyncio.ensure_future(closing.wait())
        try:
            await asyncio.wait([arrived, stop], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if arrived.done():
                changes.append(arrived.result())
        finally:
            arrived.cancel()
            stop.cancel()
            await asyncio.wait([arrived, stop])
    while not queue.empty():
        changes.append(queue.get_nowait())
    return changes


async def _within(wait: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wait, seconds)


def _newest(changes: list[T], key: Callable[[T], Hashable] | None) -> list[T]:
    return changes if key is None else list({key(change): change for change in changes}.values())


def _event(content: Any) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
