"""Binds listeners and wraps accepted connections in streams.

Here: binding and accepting, with own sockets on real event loops, else with transports.
Not here: admission (`listener`).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from busway.net.machine import OS, current_machine
from busway_bus.kernel.limits import ACCEPT_RETRY_MS
from busway_bus.server import socket_stream
from busway_bus.server.socket_stream import SocketStream
from busway_bus.server.stream import Shared, Stream
from busway_bus.server.transport_stream import TransportStream

logger = logging.getLogger("busway.server")

Accept = Callable[[Stream], None]
"""Makes a stream's owner and starts reading, or closes the stream."""
MakeStream = Callable[[socket.socket, str, Shared], SocketStream]
"""Makes the stream of an accepted socket: `SocketStream`, or one whose network a test cuts."""
StreamsOf = Callable[[str], MakeStream]
"""Returns what makes the streams of a listener, by its name."""
_BATCH: Final = 64
"""Clients accepted before others are served."""
_NO_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors of the second address of `localhost` on a host without IPv6."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor(Protocol):
    """One listening address."""

    async def bind(self, host: str, port: int) -> int:
        """Bind the address without accepting; return the port.

        `port`: 0 leaves the choice to the system. OSError, ValueError: it cannot be bound.
        """

    async def serve(self) -> None:
        """Accept clients."""

    def close(self) -> None:
        """Stop accepting."""

    async def closed(self) -> None:
        """Wait until the address is free."""


def socket_streams(_: str) -> MakeStream:
    """Return what makes the streams of any listener."""
    return SocketStream


def acceptor(
    accept: Accept, shared: Shared, backlog: int, send_buffer_bytes: int, make_stream: MakeStream = SocketStream
) -> Acceptor:
    """Make the running loop's acceptor. A simulated loop has a simulated network.

    Args:
        make_stream: unused where the loop's transports are.
    """
    if socket_stream.AVAILABLE and current_machine() is OS:
        return SocketAcceptor(accept, shared, backlog, send_buffer_bytes, make_stream)
    return TransportAcceptor(accept, shared, backlog)


class SocketAcceptor:
    """Accepts on own sockets, one for each address of the host.

    Args:
        send_buffer_bytes: SO_SNDBUF of accepted connections; the system's default unless above 0. A small one serves
            many readers while the data is still in the CPU cache.
    """

    def __init__(
        self,
        accept: Accept,
        shared: Shared,
        backlog: int,
        send_buffer_bytes: int = -1,
        make_stream: MakeStream = SocketStream,
    ) -> None:
        self._accept, self._make_stream = accept, make_stream
        self._shared = shared
        self._backlog = backlog
        self._send_buffer_bytes = send_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._retries: dict[socket.socket, asyncio.Handle] = {}

    async def bind(self, host: str, port: int) -> int:
        addresses = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        refused: OSError | None = None
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            try:
                port = self._bind(family, kind, protocol, (address[0], port, *address[2:]))
            except OSError as problem:
                if problem.errno not in _NO_FAMILY:
                    self.close()
                    raise
                refused = problem
        if not self._sockets:
            raise refused or OSError(errno.EADDRNOTAVAIL, "the host has no address")
        return port

    def _bind(self, family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> int:
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._send_buffer_bytes > 0:  # accepted sockets inherit it
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        self._sockets.append(listening)
        port: int = listening.getsockname()[1]
        return port

    async def serve(self) -> None:
        for bound in self._sockets:
            bound.listen(self._backlog)
            self._loop.add_reader(bound.fileno(), self._accept_batch, bound)

    def close(self) -> None:
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        for bound in self._sockets:
            self._loop.remove_reader(bound.fileno())
            bound.close()
        self._sockets.clear()

    async def closed(self) -> None:
        """Return at once: `close` freed the address."""

    def _accept_batch(self, bound: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                connected, address = bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                if problem.errno in _EXHAUSTED:
                    self._pause(bound, problem)
                    return
                continue  # the client is gone
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            except OSError:
                connected.close()
                continue
            self._accept(self._make_stream(connected, address[0], self._shared))
            if not self._sockets:
                return

    def _pause(self, bound: socket.socket, problem: OSError) -> None:
        """Pause accepting: descriptors or memory are exhausted."""
        logger.error("no client can be let in for %d ms: %s", ACCEPT_RETRY_MS, problem.strerror)
        self._loop.remove_reader(bound.fileno())
        self._retries[bound] = self._loop.call_later(ACCEPT_RETRY_MS / 1000, self._resume, bound)

    def _resume(self, bound: socket.socket) -> None:
        del self._retries[bound]
        self._loop.add_reader(bound.fileno(), self._accept_batch, bound)


class TransportAcceptor:
    def __init__(self, accept: Accept, shared: Shared, backlog: int) -> None:
        self._accept = accept
        self._shared = shared
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._closes: asyncio.Future[None] | None = None

    async def bind(self, host: str, port: int) -> int:
        self._server = await asyncio.get_running_loop().create_server(
            self._stream, host or None, port, backlog=self._backlog, start_serving=False
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def _stream(self) -> TransportStream:
        return TransportStream(self._accept, self._shared)

    async def serve(self) -> None:
        assert self._server is not None, "it is bound first"
        await self._server.start_serving()

    def close(self) -> None:
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.SelectorEventLoop):
            self._server.close()
            return
        # An accepted client gets its transport an iteration later, and only from an open server. Otherwise its socket would leak.
        for bound in self._server.sockets:
            loop.remove_reader(bound.fileno())
        self._closes = loop.create_future()
        loop.call_soon(self._close, self._closes)

    async def closed(self) -> None:
        """Wait until the loop has released the address."""
        if self._closes is not None:
            await self._closes
        if self._server is not None:
            await self._server.wait_closed()

    def _close(self, closed: "asyncio.Future[None]") -> None:
        assert self._server is not None, "it was open"
        self._server.close()
        if not closed.done():
            closed.set_result(None)
