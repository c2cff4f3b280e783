"""Listening sockets.

Not here: the protocol on it (`http_server`).
"""

import asyncio
import errno
import os
import socket
from ipaddress import ip_address
from typing import Any, Final, cast

from busway.errors import BuswayError

MAX_PORT: Final = 65535
_REMEDIES: Final = {
    errno.EADDRINUSE: "stop what holds the port, or choose another",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address; 127.0.0.1 serves this machine alone",
    errno.EACCES: "this user may not have that port; choose one above 1023",
}


class CannotListen(BuswayError):
    """The address is not available; the text has the reason and the remedy."""


def is_this_machine(host: str) -> bool:
    """Return whether the host is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def bind(host: str, port: int, *, subject: str) -> socket.socket:
    """Return a listening socket; connections queue in it until accepted.

    Args:
        host: an address or name of this machine; IPv4 addresses of a name come before IPv6.
        port: 0 takes a free one.
        subject: of the error text.

    Raises:
        CannotListen: the port is taken or not permitted, or the host is not this machine's or does not resolve.
    """
    loop: Any = asyncio.get_running_loop()
    if (simulated := getattr(loop, "listening_socket", None)) is not None:  # a simulated network
        return cast("socket.socket", simulated(host, port))
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, ValueError) as problem:
        raise CannotListen(f"{subject} cannot listen on {in_url(host)}:{port}: {reason(problem)}") from None
    family, kind, protocol, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    # With the protocol, because the event loop sets TCP_NODELAY only on sockets with IPPROTO_TCP.
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as problem:
        bound.close()
        raise CannotListen(f"{subject} cannot listen on {in_url(host)}:{port}: {reason(problem)}") from None
    return bound


def reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, ValueError | socket.gaierror):
        text = problem.strerror if isinstance(problem, OSError) else problem
        return f"the host does not resolve ({text}); give an address of this machine, such as 127.0.0.1"
    error_number = problem.errno or 0
    return f"{os.strerror(error_number)}; {_REMEDIES.get(error_number, 'choose another address')}"
