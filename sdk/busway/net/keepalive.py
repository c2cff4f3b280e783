"""TCP keepalive: detection of dead peers.

Not here: reactions (`connection`). A host without power, or a firewall that drops a connection, sends nothing, and some
responses may take as long as a rebalance (JoinGroup).
"""

import contextlib
import socket
from typing import Any, Final

IDLE_S: Final = 10
"""Silence before the first probe; a restarted host responds with a reset."""
INTERVAL_S: Final = 5
COUNT: Final = 3
GONE_S: Final = IDLE_S + INTERVAL_S * COUNT
"""Silence after which the peer is gone."""

_TCP: Final = (
    ("TCP_KEEPIDLE", IDLE_S),
    ("TCP_KEEPALIVE", IDLE_S),  # macOS's name
    ("TCP_KEEPINTVL", INTERVAL_S),
    ("TCP_KEEPCNT", COUNT),
)


def keep_alive(sock: Any, timeout_s: float) -> None:
    """Enable keepalive on a socket, or asyncio's wrapper of one.

    Settings that the system lacks are left out.

    Args:
        timeout_s: of unacknowledged data (TCP_USER_TIMEOUT, RFC 5482), at least `GONE_S`. It is the request timeout,
            because a slow but live broker counts too.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in (*_TCP, ("TCP_USER_TIMEOUT", int(max(timeout_s, GONE_S) * 1000))):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, number)
