"""The listening socket and all connections of it.

What lives here: accept, limits on connections, idle and half-sent ones, the one log line about a bad peer. What does not:
talking (`connection`).
"""

import asyncio
import logging
from collections import Counter

from busway_bus.handlers.context import NodeServices
from busway_bus.kernel.config import BrokerConfig, Endpoint
from busway_bus.kernel.limits import BAD_PEER_LOG_INTERVAL_MS, PARTIAL_REQUEST_TIMEOUT_MS
from busway_bus.server.connection import Connection
from busway_bus.server.intake import scratch_buffer

log = logging.getLogger("busway.server")

_COMPLAINTS_MAX = 1_000


class CannotListen(RuntimeError):
    """The address cannot be bound; the text says why and what to do."""


class Listener:
    """Accepts clients on one endpoint."""

    def __init__(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        self._config = config
        self._endpoint = endpoint
        self._connections: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._complaints: dict[tuple[str, str], float] = {}
        self._server: asyncio.Server | None = None
        self._node: NodeServices | None = None
        self._scratch = scratch_buffer()

    async def bind(self) -> Endpoint:
        """Bind the port, without accepting yet; answers the endpoint with its real port.

        Raises:
            CannotListen: the port is taken or the host is not ours.
        """
        loop = asyncio.get_running_loop()
        host = self._endpoint.host or None
        try:
            self._server = await loop.create_server(
                self._connection,
                host,
                self._endpoint.port,
                backlog=max(self._config.get("socket.listen.backlog.size"), 128),
                start_serving=False,
            )
        except OSError as problem:
            raise CannotListen(
                f"cannot listen on {self._endpoint.host}:{self._endpoint.port}: {problem.strerror or problem}; "
                "choose another port, 0 takes a free one"
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        return Endpoint(name=self._endpoint.name, host=self._endpoint.host, port=port)

    async def serve(self, node: NodeServices) -> None:
        """Begin to accept."""
        assert self._server is not None
        self._node = node
        await self._server.start_serving()

    def _connection(self) -> Connection:
        assert self._node is not None
        return Connection(
            self._node,
            max_request_bytes=self._config.get("socket.request.max.bytes"),
            scratch=self._scratch,
            on_open=self._opened,
            on_close=self._closed,
            complain=self.complain,
        )

    def _opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._config.get("max.connections"):
            self.complain(connection.host, "refused: max.connections is reached")
            return False
        if self._by_host[connection.host] >= self._config.get("max.connections.per.ip"):
            self.complain(connection.host, "refused: max.connections.per.ip is reached")
            return False
        self._connections.add(connection)
        self._by_host[connection.host] += 1
        return True

    def _closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]

    def complain(self, host: str, reason: str) -> None:
        """One line about a bad peer, at most one a second for each host and reason."""
        now = asyncio.get_running_loop().time()
        key = (host, reason.split("(", maxsplit=1)[0][:40])
        if now - self._complaints.get(key, float("-inf")) < BAD_PEER_LOG_INTERVAL_MS / 1000:
            return
        if len(self._complaints) >= _COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[key] = now
        log.warning("connection from %s closed: %s", host, reason)

    def sweep(self) -> None:
        """End connections that are idle or have sent half a request for too long."""
        now = asyncio.get_running_loop().time()
        idle_s = self._config.get("connections.max.idle.ms") / 1000
        for connection in tuple(self._connections):
            since = connection.partial_since
            if since is not None and now - since > PARTIAL_REQUEST_TIMEOUT_MS / 1000:
                self.complain(connection.host, "a request was begun and not finished")
                connection.abort()
            elif idle_s > 0 and not connection.busy and now - connection.last_active > idle_s:
                connection.close()

    async def close(self) -> None:
        """Stop accepting and end every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()
