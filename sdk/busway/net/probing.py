"""Whether a process still listens on an address.

Here: a connection that is closed at once.
Not here: what follows from it.
"""

import asyncio
import errno
import socket
from collections.abc import Collection
from typing import Final

from busway.net import lookups
from busway.net.clock import REAL_TIME

_REFUSED: Final = frozenset({errno.ECONNREFUSED})
_ABSENT: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EHOSTDOWN})
_NO_NAME: Final = frozenset(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))


async def is_reached(host: str, port: int, timeout_s: float) -> bool:
    """Whether a process listens, and can be reached from here."""
    return await _failure(host, port, timeout_s) is None


async def is_refused(host: str, port: int, timeout_s: float) -> bool:
    """Whether connections are refused: no process listens, on any address of the host.

    False without an answer: the network may be cut.
    """
    problem = await _failure(host, port, timeout_s)
    return problem is not None and _is_all(problem, _REFUSED)


async def is_absent(host: str, port: int, timeout_s: float) -> bool:
    """Whether connections are refused, no host has the address, or no address has the name.

    A container that has ended leaves neither. Of an address that was not reached before (`is_reached`) this shows
    nothing, and of a live process a name may be unknown for a moment.
    """
    problem = await _failure(host, port, timeout_s)
    if isinstance(problem, socket.gaierror):
        return problem.errno in _NO_NAME
    return problem is not None and _is_all(problem, _ABSENT)


async def _failure(host: str, port: int, timeout_s: float) -> OSError | None:
    """Return why no connection is made; None if one is, and TimeoutError without an answer."""
    try:
        async with REAL_TIME.timeout(timeout_s):
            transport, _ = await lookups.connect(asyncio.Protocol, host, port)
    except OSError as problem:
        return problem
    transport.abort()
    return None


def _is_all(problem: OSError, reasons: Collection[int]) -> bool:
    """Whether these are the only reasons; asyncio joins the errors of several addresses into one text."""
    if problem.errno is not None:
        return problem.errno in reasons
    text = str(problem)
    return 0 < sum(text.count(f"[Errno {reason}]") for reason in reasons) == text.count("[Errno")
