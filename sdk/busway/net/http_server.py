"""An ASGI application in the caller's event loop: the only place that runs uvicorn.

Not here: the socket (`listening`), applications: registry, Connect worker and `busway.web` bring theirs.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from busway.net.clock import REAL_TIME
from busway.net.http_connections import PATIENCE, Connection, Patience, close_late
from busway.net.listening import CannotListen

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger: logging.Logger = logging.getLogger("busway.http")

GRACE_S: Final = 5.0
"""Time for running requests to end when the server stops; streams end at once."""
IDLE_S: Final = 30
"""Idle timeout of connections, seconds; Confluent's, since clients with a pool reuse them."""
CLOSING: Final = "busway.closing"
"""Scope key of an `asyncio.Event`, set when the server stops, for endless responses."""
_TICK_S: Final = 1.0
"""Interval for the Date header and the check of client limits."""
_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_CANCEL_S: Final = 1.0
"""Time for a cancelled request to clean up; one busy in a thread ends with the thread."""
_ARRIVAL_TURNS: Final = 8
"""Event loop turns from accepting a connection to its request's task, with some to spare."""


@contextlib.asynccontextmanager
async def serving(
    asgi: "ASGIApp", bound: socket.socket, *, grace_s: float = GRACE_S, patience: Patience = PATIENCE
) -> AsyncIterator[Callable[[], int]]:
    """Serve an ASGI application, with its lifespan, while the block runs.

    Yields a function that counts open connections.

    At the end, received requests are answered, then connections end and the socket is closed.

    Args:
        bound: from `listening.bind`; owned by this server.
        grace_s: requests that take longer at the end are cancelled.

    Raises:
        CannotListen: the application could not start.
    """
    server = _Server(asgi, grace_s, patience)
    with REAL_TIME.used():
        running = asyncio.ensure_future(server.run_on(bound))
    ready = asyncio.ensure_future(server.ready.wait())
    try:
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise CannotListen("the HTTP server ended before it served")
        yield lambda: len(server.server_state.connections)
    finally:
        ready.cancel()
        server.stop()
        try:
            await asyncio.wait([running, ready])
            running.exception()  # mark as retrieved: an error before serving was raised above
        finally:
            bound.close()


def _has_two_lengths(scope: "Scope") -> bool:
    """Return whether a request has two lengths: a proxy may believe the other one (RFC 9112, 6.1)."""
    return sum(name in _LENGTHS for name, _ in scope["headers"]) > 1


async def _refuse(send: "Send") -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": b"Content-Length and Transfer-Encoding exclude each other\n"})


class _Connections(set[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.gone = asyncio.Event()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if not self:
            self.gone.set()

    async def wait_gone(self) -> None:
        while self:
            self.gone.clear()
            await self.gone.wait()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, and with events instead of ten polls a second."""

    def __init__(self, asgi: "ASGIApp", grace_s: float, patience: Patience) -> None:
        self._grace_s = grace_s
        self._tick_s = min(_TICK_S, patience.request_s)
        self.ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._connections = _Connections()
        self._broken_off = False

        async def with_closing(scope: "Scope", receive: "Receive", send: "Send") -> None:
            try:
                if scope["type"] == "http" and _has_two_lengths(scope):
                    await _refuse(send)
                    return
                await asgi({**scope, CLOSING: self._closing}, receive, send)
            except asyncio.CancelledError:
                if not self._broken_off:
                    raise

        super().__init__(
            uvicorn.Config(
                with_closing,
                http=partial(Connection, patience=patience),  # type: ignore[arg-type]
                log_config=None,
                access_log=False,
                ws="none",
                timeout_keep_alive=IDLE_S,
            )
        )
        self.server_state.connections = self._connections

    async def run_on(self, bound: socket.socket) -> None:
        try:
            await self.serve([bound])
        except SystemExit:
            # uvicorn's signal for a failed startup; the application's error is in the log.
            raise CannotListen("the web application could not start: its lifespan failed; see the log") from None

    def stop(self) -> None:
        self.should_exit = True
        self._closing.set()

    # Called by uvicorn

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # sets the Date header
            close_late(self._connections, asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._tick_s)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn sleeps here, to read received requests before idle connections are closed. Turns suffice.
        for _ in range(_ARRIVAL_TURNS):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for connection in tuple(self._connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._grace_s):
                await self._connections.wait_gone()
                await self._requests_end()
        except TimeoutError:
            await self._break_off()
        await self.lifespan.shutdown()

    async def _requests_end(self) -> None:
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)

    async def _break_off(self) -> None:
        self._broken_off = True
        tasks = tuple(self.server_state.tasks)
        logger.warning("%d requests took longer than %g s to end and are broken off", len(tasks), self._grace_s)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_S)
        for connection in tuple(self._connections):
            connection.transport.abort()
