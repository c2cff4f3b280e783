"""Look-ups of host names by an event loop.

Here: threads of their own, and one look-up for all that wait for the same name.
Not here: connecting. uvloop has its own threads for this.

asyncio looks names up in the threads of `run_in_executor`. A name server that does not answer holds a thread for 10 s and
more, also after its caller has given up: repeated connections to one lost host would take them all, from all other work.
"""

import asyncio
import functools
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

LOOKUPS_AT_ONCE_MAX: Final = 16


class Lookups:
    """The look-ups of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
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
        """Return addresses as `socket.getaddrinfo`; an earlier look-up that still runs is shared.

        Raises:
            socket.gaierror
        """
        key = (host, port, family, type, proto, flags)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._loop.run_in_executor(self._threads, socket.getaddrinfo, *key)
            running.add_done_callback(functools.partial(self._ended, key))
        return await asyncio.shield(running)

    def _ended(self, key: tuple[Any, ...], lookup: "asyncio.Future[list[Any]]") -> None:
        del self._running[key]
        if not lookup.cancelled():
            lookup.exception()  # those who wait for it get it


def share(loop: asyncio.AbstractEventLoop) -> None:
    """Let asyncio's loop use `Lookups`; other loops stay as they are."""
    if isinstance(loop, asyncio.BaseEventLoop):
        loop.getaddrinfo = Lookups(loop).getaddrinfo  # type: ignore[method-assign] # create_connection calls it
