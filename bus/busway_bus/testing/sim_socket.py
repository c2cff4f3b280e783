"""What stands for a socket object in a simulated world.

What lives here: names of both ends and options. What does not: what is sent and received (`sim_transport`).
"""

import socket
from typing import Any


class SimSocket:
    """What is asked of a socket object."""

    def __init__(
        self,
        name: tuple[str, int],
        peer: tuple[str, int] | None = None,
        options: dict[tuple[int, int], int] | None = None,
    ) -> None:
        self._name = name
        self._peer = peer
        self._options: dict[tuple[int, int], int] = {} if options is None else options
        self.family = socket.AF_INET
        self.type = socket.SOCK_STREAM

    def getsockname(self) -> tuple[str, int]:
        """Address and port."""
        return self._name

    def getpeername(self) -> tuple[str, int] | None:
        """Address and port of the other end; None of one that listens."""
        return self._peer

    def setsockopt(self, level: int, option: int, number: Any, *_: Any) -> None:
        """Keepalive is heeded; there is nothing else to tune."""
        self._options[level, option] = number

    def fileno(self) -> int:
        """None."""
        return -1

    def close(self) -> None:
        """Its server or transport is what holds it."""

    def __enter__(self) -> "SimSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
