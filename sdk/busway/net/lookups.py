"""Look-ups of host names by an event loop.

Here: threads of their own, one look-up for all that wait for the same name, connecting by it.
Not here: the protocol of a connection (`connection`), and look-ups where nothing called `share`.

Event loops look names up in threads that other work needs, asyncio in those of `run_in_executor`, uvloop in those of
libuv. A name server that does not answer holds a thread for 10 s and more, also after its caller has given up: repeated
connections to one lost host would take them all.
"""

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakKeyDictionary

LOOKUPS_AT_ONCE_MAX: Final = 16
_SHARED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, "Lookups"]] = WeakKeyDictionary()


class Lookups:
    """The look-ups of one loop, to which they have no reference: `_SHARED` would keep it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE_MAX, thread_name_prefix="busway-names")
        self._running: dict[tuple[Any, ...], asyncio.Future[list[Any]]] = {}

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Return addresses as `socket.getaddrinfo`; an earlier look-up of the name that still runs is shared.

        An IP address with a number as port needs no thread.

        Raises:
            socket.gaierror
        """
        if isinstance(port, int) and _is_address(host):
            return socket.getaddrinfo(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        number = port if host is not None and isinstance(port, int) else None
        key = (host, port if number is None else None, family, type, proto, flags)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.get_running_loop().run_in_executor(
                self._threads, socket.getaddrinfo, *key
            )
            running.add_done_callback(functools.partial(self._ended, key))
        addresses = await asyncio.shield(running)
        if number is None:
            return addresses
        return [(*entry[:4], (entry[4][0], number, *entry[4][2:])) for entry in addresses]

    def _ended(self, key: tuple[Any, ...], lookup: "asyncio.Future[list[Any]]") -> None:
        del self._running[key]
        if not lookup.cancelled():
            lookup.exception()  # those who wait for it get it


def _is_address(host: bytes | str | None) -> bool:
    try:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host or "")
    except ValueError:
        return False
    return True


def share(loop: asyncio.AbstractEventLoop) -> None:
    """Use `Lookups` for `connect` on a loop, and for whatever asyncio's own loop connects to."""
    lookups = _SHARED[loop] = Lookups()
    if isinstance(loop, asyncio.BaseEventLoop):
        loop.getaddrinfo = lookups.getaddrinfo  # type: ignore[method-assign] # create_connection calls it


async def connect(
    protocol: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
) -> tuple[asyncio.Transport, asyncio.Protocol]:
    """As `loop.create_connection`, but on every loop by its `Lookups`, if it has them.

    Raises:
        OSError: of the only address, or of all in one text, as asyncio writes it.
    """
    loop = asyncio.get_running_loop()
    lookups = _SHARED.get(loop)
    if lookups is None or isinstance(loop, asyncio.BaseEventLoop):
        return await loop.create_connection(protocol, host, port, **options)
    problems: list[OSError] = []
    for family, kind, number, _, address in await lookups.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            connected = await _connected(loop, socket.socket(family, kind, number), address)
        except OSError as problem:
            problems.append(problem)
        else:
            return await loop.create_connection(protocol, sock=connected, **options)
    if len(problems) == 1:
        raise problems[0]
    raise OSError(f"Multiple exceptions: {', '.join(map(str, problems))}")


async def _connected(loop: asyncio.AbstractEventLoop, unconnected: socket.socket, address: Any) -> socket.socket:
    try:
        unconnected.setblocking(False)
        await loop.sock_connect(unconnected, address)
    except BaseException:  # cancelled too: nothing else closes it
        unconnected.close()
        raise
    return unconnected
