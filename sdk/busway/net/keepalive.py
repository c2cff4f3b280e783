"""Finding out that the other end of a connection is gone.

What lives here: asking the kernel to. What does not: what follows (`connection`). A host that loses its power, or a firewall that forgets a
connection, says nothing, and some answers are waited for as long as a rebalance may take (JoinGroup). Kafka's clients ask for keepalive
too, but leave the operating system's two hours before the first probe.
"""

import contextlib
import socket
from typing import Any, Final

IDLE_S: Final = 10
"""Silence before the kernel asks whether the other end is there; a host that is up again answers that it knows of no connection."""
INTERVAL_S: Final = 5
"""Between two such questions."""
COUNT: Final = 3
"""Questions without an answer after which the connection is broken."""
GONE_S: Final = IDLE_S + INTERVAL_S * COUNT
"""After so long without an answer the other end is gone."""

_TCP: Final = (
    ("TCP_KEEPIDLE", IDLE_S),
    ("TCP_KEEPALIVE", IDLE_S),  # as macOS calls it
    ("TCP_KEEPINTVL", INTERVAL_S),
    ("TCP_KEEPCNT", COUNT),
)


def keep_alive(sock: Any, timeout_s: float) -> None:
    """Have the kernel break a connection, a socket or what asyncio has for one, when its other end is gone.

    What a system does not know of these settings is left out.

    Args:
        timeout_s: how long what was sent may stay without acknowledgement (TCP_USER_TIMEOUT, RFC 5482). It is as long as a request
            may take, because a broker that is alive and lets us wait counts too; never shorter than `GONE_S`.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in (*_TCP, ("TCP_USER_TIMEOUT", int(max(timeout_s, GONE_S) * 1000))):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, number)
