"""All listeners and their connections.

Here: limits, closing idle and stalled connections.
Not here: sockets (`acceptor`), requests (`connection`).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from busway.net.listening import reason
from busway_bus.handlers.common.context import NodeServices
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import REQUEST_BYTES_MAX, STOP_WAIT_MS
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.kernel.peer_warnings import PeerWarnings
from busway_bus.server.acceptor import Acceptor, StreamsOf, acceptor, socket_streams
from busway_bus.server.connection import Connection
from busway_bus.server.dispatch import BROKER, BROKERS_CONTROLLER, Routes
from busway_bus.server.frame_reader import scratch_buffer
from busway_bus.server.request_memory import RequestMemory
from busway_bus.server.stream import Shared, Stream

if TYPE_CHECKING:
    from busway_bus.handlers.for_controllers.services import ControllerServices

logger = logging.getLogger("busway.server")


class CannotListen(RuntimeError):
    """The address cannot be bound; the text has reason and remedy."""


class Listeners:
    """Accepts clients on every configured listener, with common limits.

    Args:
        controller_routes: the APIs of the controller's listeners; by default those of a node that is its only voter.
        routes: the APIs of the broker's listeners.
        streams: makes the streams of a listener, by its name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        controller_routes: Routes = BROKERS_CONTROLLER,
        routes: Routes = BROKER,
        *,
        streams: StreamsOf = socket_streams,
    ) -> None:
        self._config, self._streams = config, streams
        self._controller_routes, self._routes = controller_routes, routes
        self._connections: dict[Connection, str] = {}  # with their listeners, in order of acceptance
        self._by_host: Counter[str] = Counter()
        self._peer_warnings = PeerWarnings()
        self._acceptors: dict[str, Acceptor] = {}  # by listener
        self.advertised: dict[str, Endpoint] = {}
        """Addresses for the broker's clients by listener name, in the config's order, once bound."""
        self.controller_advertised: dict[str, Endpoint] = {}
        self._nodes: dict[str, NodeServices | ControllerServices] = {}  # by listener that serves
        self._scratch = scratch_buffer()
        self._shared = Shared()
        queued_max = config.get("queued.max.request.bytes")
        self._memory = RequestMemory(REQUEST_BYTES_MAX if queued_max < 0 else queued_max)
        self._descriptors_max = 0
        self._empty = asyncio.Event()
        self._closing = False

    async def bind(self) -> None:
        """Bind the ports, without accepting yet, or raise CannotListen."""
        for endpoint in self._config.listeners:
            self.advertised[endpoint.name] = await self._bind(endpoint, self._routes)
        for endpoint in self._config.controller_listeners:
            self.controller_advertised[endpoint.name] = await self._bind(endpoint, self._controller_routes)

    async def _bind(self, endpoint: Endpoint, routes: Routes) -> Endpoint:
        backlog = max(self._config.get("socket.listen.backlog.size"), 128)
        send_buffer_bytes = self._config.get("socket.send.buffer.bytes")
        accept = partial(self._accept, endpoint.name, routes)
        door = acceptor(accept, self._shared, backlog, send_buffer_bytes, self._streams(endpoint.name))
        try:
            port = await door.bind(endpoint.host, endpoint.port)
        except (OSError, ValueError) as problem:
            raise CannotListen(f"{endpoint.name} cannot listen on {endpoint.address}: {reason(problem)}") from None
        self._acceptors[endpoint.name] = door
        return self._config.advertised_by(endpoint, port=port)

    async def serve(self, node: "NodeServices | ControllerServices", connections_max: int) -> None:
        """Accept up to `connections_max` connections, or `max.connections` if less, where it is not done yet."""
        await self._serve(self._acceptors, node, connections_max)

    async def serve_controllers(self, node: "ControllerServices", connections_max: int) -> None:
        """Accept on the controller's listeners alone."""
        await self._serve(self.controller_advertised, node, connections_max)

    async def _serve(
        self, names: Iterable[str], node: "NodeServices | ControllerServices", connections_max: int
    ) -> None:
        self._descriptors_max = connections_max
        for name in names:
            if name not in self._nodes:
                self._nodes[name] = node
                await self._acceptors[name].serve()

    def _accept(self, listener: str, routes: Routes, stream: Stream) -> None:
        advertised = self.advertised if listener in self.advertised else self.controller_advertised
        connection = Connection(
            self._nodes[listener],
            stream,
            routes=routes,
            advertised=advertised[listener],
            max_request_bytes=self._config.get("socket.request.max.bytes"),
            scratch=self._scratch,
            memory=self._memory,
            on_close=self._closed,
            warn_about_peer=self.warn_about_peer,
        )
        if self._admits(connection, listener):
            stream.resume_reading()
        else:
            stream.abort()

    def connection_counts(self) -> Mapping[str, int]:
        return {
            **dict.fromkeys((*self.advertised, *self.controller_advertised), 0),
            **Counter(self._connections.values()),
        }

    def _admits(self, connection: Connection, listener: str) -> bool:
        if self._closing:
            return False  # accepted by the event loop before `close`
        configured = self._config.get("max.connections")
        if len(self._connections) >= min(self._descriptors_max, configured):
            limit = (
                "max.connections"
                if configured <= self._descriptors_max
                else f"what the limit of open files allows ({self._descriptors_max})"
            )
            self.warn_about_peer(connection.host, f"refused: {limit} is reached")
            return False
        if self._by_host[connection.host] >= self._config.get("max.connections.per.ip"):
            self.warn_about_peer(connection.host, "refused: max.connections.per.ip is reached")
            return False
        self._connections[connection] = listener
        self._by_host[connection.host] += 1
        return True

    def _closed(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]
        if not self._connections:
            self._empty.set()

    def warn_about_peer(self, host: str, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        left_out = self._peer_warnings.admit(host, now)
        if left_out is None:
            return
        if left_out:
            logger.warning("connections closed: %d more lines like the next were left out", left_out)
        logger.warning("connection from %s closed: %s", host, reason)

    def sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        idle_s = self._config.get("connections.max.idle.ms") / 1000
        for connection in tuple(self._connections):
            idle_since = connection.idle_since(now)
            if connection.overdue(now):
                self.warn_about_peer(connection.host, "a request was begun and not finished")
                connection.abort()
            elif idle_s > 0 and idle_since is not None and now - idle_since > idle_s:
                connection.abort()

    async def close(self, *, finish: bool = True) -> None:
        """Stop accepting and close every connection.

        Args:
            finish: first complete received requests, for at most `STOP_WAIT_MS`; otherwise as if the process died.
        """
        self._closing = True
        for door in self._acceptors.values():
            door.close()
        if finish:
            await self._finish()
        for connection in tuple(self._connections):
            connection.give_up()
        self._shared.pages.close()
        for door in self._acceptors.values():
            await door.closed()

    async def _finish(self) -> None:
        for connection in tuple(self._connections):
            connection.finish()
        if self._connections:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), STOP_WAIT_MS / 1000)
        if self._connections:
            logger.warning("%d connections did not end in %d ms and are cut off", len(self._connections), STOP_WAIT_MS)
