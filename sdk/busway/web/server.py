"""An HTTP server in the app's event loop.

Here: allowed addresses, start and stop.
Not here: the server (`busway.net.http_server`), paths.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from busway.app.model.topic import BadDeclaration
from busway.net import http_server
from busway.net.listening import MAX_PORT, CannotListen, bind, in_url, is_this_machine


class BadAddress(CannotListen, BadDeclaration):
    """An invalid address, or one that needs `insecure`; a retry does not help."""


@contextlib.asynccontextmanager
async def serving(
    asgi: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, insecure: bool = False
) -> AsyncIterator[str]:
    """Serve an ASGI application, with its lifespan, within the block; yield the address.

    At the end streams of `event_stream` end at once, current requests within 5 s.

    Args:
        port: 0 takes a free one.
        insecure: the network is trusted, so others may reach the host; Busway adds no authentication.

    Raises:
        BadAddress: an invalid port, or an address that needs `insecure`.
        CannotListen: the address is taken or not this machine's, or the application could not start.
    """
    if not 0 <= port <= MAX_PORT:
        raise BadAddress(f"port {port} is not a number from 0 to {MAX_PORT}")
    if not insecure and not is_this_machine(host):
        raise BadAddress(
            f"host {host} is reachable by others and there is no authentication; use 127.0.0.1, or say insecure "
            "(busway run --insecure) if the network is trusted"
        )
    bound = await bind(host, port, subject="the service")
    async with http_server.serving(asgi, bound):
        yield f"http://{in_url(host)}:{bound.getsockname()[1]}"


def parse_address(given: str) -> tuple[str | None, int]:
    """Split `[HOST:]PORT` into host, or None, and port; an IPv6 host is in brackets.

    Raises:
        BadAddress: another format.
    """
    host, colon, port = given.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT or (colon and not host):
        raise BadAddress(f"{given!r} is no address to serve HTTP on: give [HOST:]PORT, such as 8000")
    return host.removeprefix("[").removesuffix("]") or None, int(port)


def closing_of(request: HTTPConnection) -> asyncio.Event:
    """Return the event set when the request's server stops; never set by other servers than `serving`."""
    closing: Any = request.scope.get(http_server.CLOSING)
    return closing if isinstance(closing, asyncio.Event) else asyncio.Event()
