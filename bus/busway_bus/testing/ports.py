"""Ports of this machine that nobody else gets meanwhile.

What lives here: holding one. What does not: listening on it.

A port that is known before somebody listens on it, or between a stop and the next start, may be given away: the kernel hands it to whoever
asks for any, or to a connection for its own end. Then clients that look for the one server find another. A socket that is bound to the
port and does not listen keeps it: the kernel gives it to nobody, who comes to it is refused, and a server that is told the number and
allows the address to be reused (asyncio's, Java's, PostgreSQL's do) can listen there. Linux alone lets both be bound.
"""

import socket
import sys
import weakref
from typing import Final

HOLDS: Final = sys.platform.startswith("linux")
"""Whether a port can be held; elsewhere it is only free at the moment at which it is chosen."""


class HeldPort:
    """A port of 127.0.0.1, until it is released or nobody has this object any more.

    Args:
        number: which; 0 takes one that is free.

    Attributes:
        number: of the port.

    Raises:
        OSError: somebody has it.
    """

    def __init__(self, number: int = 0) -> None:
        bound = socket.socket()
        try:
            bound.bind(("127.0.0.1", number))
        except OSError:
            bound.close()
            raise
        # Only now: two that held the same port would both be let.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = bound.getsockname()[1]
        self._release = weakref.finalize(self, bound.close)
        if not HOLDS:
            self.release()

    def release(self) -> None:
        """Let anybody have it."""
        self._release()
