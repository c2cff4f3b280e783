"""Reserved ports of this machine.

Here: holding a port.
Not here: listening on it.

A free port may be given to another process, or to a connection as its local end, before its server listens. A socket
that is bound and does not listen holds it: the kernel refuses connections, and a server with SO_REUSEADDR (asyncio's,
Java's, PostgreSQL's) can listen there. Only Linux allows both to be bound.
"""

import socket
import sys
import weakref
from typing import Final

HOLDS: Final = sys.platform.startswith("linux")
"""Whether a port can be held, not only chosen."""


class HeldPort:
    """A port of 127.0.0.1, held until release or garbage collection.

    `number`: 0 takes a free port. OSError: it is in use.
    """

    def __init__(self, number: int = 0) -> None:
        bound = socket.socket()
        try:
            bound.bind(("127.0.0.1", number))
        except OSError:
            bound.close()
            raise
        # After the bind: otherwise two could hold the same port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = bound.getsockname()[1]
        self._release = weakref.finalize(self, bound.close)
        if not HOLDS:
            self.release()

    def release(self) -> None:
        self._release()
