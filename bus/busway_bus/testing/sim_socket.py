"""A substitute for a socket object in a simulated world.

Here: both ends' names, options.
Not here: data (`sim_transport`).
"""

import socket
from typing import Any


class SimSocket:
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
        return self._name

    def getpeername(self) -> tuple[str, int] | None:
        return self._peer

    def setsockopt(self, level: int, option: int, number: Any, *_: Any) -> None:
        """Set an option; only those of keepalive have an effect."""
        self._options[level, option] = number

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Do nothing: its server or transport closes."""

    def __enter__(self) -> "SimSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
