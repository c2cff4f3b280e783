"""An HTTP server in the event loop of the app.

What lives here: the socket, start and stop. What does not: paths. Signals stay the app's business.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from busway.app.declaring.routes import BadDeclaration
from busway.errors import BuswayError

GRACE_S: Final = 5
"""Requests under way may take so long to end when the server stops; streams end at once."""
IDLE_S: Final = 30
"""Connections that nobody uses are closed; clients with a pool send their next request on one."""
MAX_PORT: Final = 65535
_CLOSING: Final = "busway.closing"


class CannotListen(BuswayError):
    """The address cannot be had; the text says what to do."""


class BadAddress(CannotListen, BadDeclaration):
    """No machine could have it, or it may not be had without consent: trying again does not help."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    asgi: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, insecure: bool = False
) -> AsyncIterator[str]:
    """Serve an ASGI application as long as the block runs; yields its address.

    Its lifespan runs too. At the end streams of `event_stream` end at once, requests under way within `GRACE_S`.

    Args:
        asgi: the application.
        host: beyond this machine only with `insecure`.
        port: 0 takes a free one.
        insecure: the network is trusted; there is no authentication but the application's own.

    Raises:
        BadAddress: the port is no port, or the address may be reached by others and `insecure` was not said.
        CannotListen: the address is taken or is not this machine's, or the application could not start.
    """
    bound = _bind(host, port, insecure=insecure)
    closing = asyncio.Event()

    async def with_closing(scope: Scope, receive: Receive, send: Send) -> None:
        await asgi({**scope, _CLOSING: closing}, receive, send)

    server = _Server(
        uvicorn.Config(
            with_closing,
            log_config=None,
            access_log=False,
            ws="none",
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    running = asyncio.ensure_future(_run(server, bound))
    ready = asyncio.ensure_future(server.ready.wait())
    try:
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise CannotListen("the HTTP server ended before it served")
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    finally:
        ready.cancel()
        closing.set()
        server.should_exit = True
        await asyncio.wait([running, ready])
        running.exception()  # what ended it was raised above, if it is not too late to matter
        bound.close()


async def _run(server: _Server, bound: socket.socket) -> None:
    try:
        await server.serve([bound])
    except SystemExit:
        # uvicorn's way to say it; the application's own words are in the log.
        raise CannotListen("the web application could not start: its lifespan failed; see the log") from None


def parse_address(given: str) -> tuple[str | None, int]:
    """`[HOST:]PORT` → host, None if there is none, and port; an IPv6 host is in brackets.

    Raises:
        BadAddress: it is something else.
    """
    host, colon, port = given.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT or (colon and not host):
        raise BadAddress(f"{given!r} is no address to serve HTTP on: give [HOST:]PORT, such as 8000")
    return host.removeprefix("[").removesuffix("]") or None, int(port)


def closing_of(request: HTTPConnection) -> asyncio.Event:
    """Set when the server that brought this request stops; never, under another server than `serving`."""
    found: Any = request.scope.get(_CLOSING)
    return found if isinstance(found, asyncio.Event) else asyncio.Event()


def _bind(host: str, port: int, *, insecure: bool) -> socket.socket:
    if not 0 <= port <= MAX_PORT:
        raise BadAddress(f"port {port} is not a number from 0 to {MAX_PORT}")
    if not insecure and not _is_this_machine(host):
        raise BadAddress(
            f"host {host} is reachable by others and there is no authentication; use 127.0.0.1, or say insecure "
            "(busway run --insecure) if the network is trusted"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because the event loop switches Nagle's algorithm off only where it sees TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as problem:
        bound.close()
        raise CannotListen(
            f"cannot serve HTTP on {host}:{port}: {problem.strerror}; stop what holds the port, or choose another"
        ) from None
    return bound


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
