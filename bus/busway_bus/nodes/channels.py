"""Connections to the other nodes of the cluster, one for each node and purpose.

Here: the implementations of `kernel.node_channels`, over `busway.net`.
Not here: the quorum's own connections (`quorum.peers`), what is sent.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from busway.errors import BuswayError, ConnectionFailed, UnsupportedByBroker
from busway.net.connection import Connection
from busway_bus.metadata.image import BrokerImage, ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError

logger = logging.getLogger("busway.nodes")

RETRY_S: Final = 0.05
"""Pause before the active controller is looked up again; Kafka's is 100 ms."""
_LOST: Final = (BuswayError, ProtocolError, TimeoutError, OSError)
"""Errors after which a connection is not used again."""


class _Line:
    """A connection that is opened on first use, and again once it has ended. Requests are pipelined.

    Attributes:
        brokers: the newest image's, in which its node had this address.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.address = (host, port)
        self.brokers: Mapping[int, BrokerImage] | None = None
        self._client_id, self._timeout_s = client_id, timeout_s
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._closed = False

    @property
    def open(self) -> Connection | None:
        """The open connection, for a request without a timer for opening it."""
        return self._connection if self._connection is not None and self._connection.open else None

    async def connected(self) -> Connection:
        """Return the open connection. BuswayError, OSError: it cannot be opened."""
        if (connection := self.open) is not None:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._ended)
        connecting = self._connecting
        await asyncio.wait((connecting,))  # unlike `shield`, it raises CancelledError only if this caller is cancelled
        if connecting.cancelled():
            raise ConnectionFailed("the connection was closed while it was opened")
        return connecting.result()

    async def _connect(self) -> Connection:
        host, port = self.address
        connection = Connection(host, port, client_id=self._client_id, timeout_s=self._timeout_s, of_client=False)
        await connection.connect()
        self._connection = connection
        if self._closed:
            connection.close()
        return connection

    def _ended(self, task: "asyncio.Task[Connection]") -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # those who wait for it get it

    def drop(self, connection: Connection) -> None:
        connection.close()
        if self._connection is connection:
            self._connection = None

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ActiveController:
    """A `kernel.node_channels.ControllerChannel` for one purpose.

    Args:
        voters: address by node.
        leader: the voter that leads, -1 if unknown.
        timeout_ms: bound of one attempt.
        retry_ms: bound of all attempts of a request.
    """

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        leader: Callable[[], int],
        *,
        timeout_ms: int,
        retry_ms: int,
    ) -> None:
        self._client_id, self._voters, self._leader = str(node_id), voters, leader
        self._timeout_s, self._retry_s = min(timeout_ms, retry_ms) / 1000, retry_ms / 1000
        self._line: _Line | None = None
        self._leader_id = -1
        self._closing = asyncio.Event()

    async def send(self, request: Any, *, sending: Callable[[], None] = lambda: None) -> Any:
        """Send a request, again where the controller has moved or the connection ended.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, no active controller answered in time, or this node stops;
                UNSUPPORTED_VERSION.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._retry_s
        reason = "no controller leads"
        while not self._closing.is_set():
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            line = self._current()
            if line is not None:
                try:
                    answer = await self._attempt(line, request, min(self._timeout_s, left_s), sending)
                except UnsupportedByBroker as problem:
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(problem)) from None
                except _LOST as problem:
                    reason = str(problem)
                else:
                    if answer.error_code != ErrorCode.NOT_CONTROLLER:
                        return answer
                    reason = f"node {self._leader_id} does not lead any more"
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._closing.wait()
            except TimeoutError:
                pass
        if self._closing.is_set():
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "this node stops")
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"no active controller answered within {self._retry_s:g} s: {reason}"
        )

    def _current(self) -> _Line | None:
        leader_id = self._leader()
        if leader_id != self._leader_id:
            self._leader_id = leader_id
            if self._line is not None:
                self._line.close()
                self._line = None
        address = self._voters.get(leader_id)
        if self._line is None and address is not None:
            self._line = _Line(*address, self._client_id, self._timeout_s)
        return self._line

    async def _attempt(self, line: _Line, request: Any, timeout_s: float, sending: Callable[[], None]) -> Any:
        connection = line.open
        try:
            if connection is not None:
                sending()
                return await connection.request(request, timeout_s=timeout_s)
            async with asyncio.timeout(timeout_s):
                connection = await line.connected()
                sending()
                return await connection.request(request, timeout_s=timeout_s)
        except UnsupportedByBroker:
            raise
        except _LOST:
            if connection is not None:
                line.drop(connection)
            raise

    def close(self) -> None:
        """Fail pending requests, and all later ones."""
        self._closing.set()
        if self._line is not None:
            self._line.close()


class BrokerConnections:
    """A `kernel.node_channels.BrokerChannels`.

    Args:
        listener: the name of the listener between brokers.
        image: the newest image, with the brokers' addresses.
    """

    def __init__(self, node_id: int, listener: str, image: Callable[[], ClusterImage], *, connect_ms: int) -> None:
        self._node_id, self._listener, self._image = node_id, listener, image
        self._connect_s = connect_ms / 1000
        self._lines: dict[tuple[int, str], _Line] = {}
        self._closed = False

    async def send(self, node_id: int, request: Any, *, purpose: str = "", timeout_ms: int) -> Any:
        """Send a request once; see `kernel.node_channels.BrokerChannels`.

        A response that is late ends its connection, with all other requests of its purpose.
        """
        line = self._line(node_id, purpose)
        connection = line.open
        try:
            if connection is None:
                async with asyncio.timeout(min(self._connect_s, timeout_ms / 1000)):
                    connection = await line.connected()
        except _LOST as problem:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} cannot be reached: {problem or 'timed out'}"
            ) from None
        try:
            return await connection.request(request, timeout_s=timeout_ms / 1000)
        except UnsupportedByBroker as problem:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(problem)) from None
        except _LOST as problem:
            line.drop(connection)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {node_id} gave no answer: {problem}") from None

    def _line(self, node_id: int, purpose: str) -> _Line:
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node stops")
        key, image = (node_id, purpose), self._image()
        line = self._lines.get(key)
        if line is not None and line.brokers is image.brokers:
            return line
        address = image.address(node_id, self._listener)
        if address is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is fenced, unknown, or not on {self._listener}"
            )
        if line is not None and line.address != (address.host, address.port):
            line.close()
            line = None
        if line is None:
            client_id = f"broker-{self._node_id}{f'-{purpose}' if purpose else ''}"
            line = self._lines[key] = _Line(address.host, address.port, client_id, self._connect_s)
        line.brokers = image.brokers
        return line

    def close(self) -> None:
        """End all connections; pending requests fail."""
        self._closed = True
        for line in self._lines.values():
            line.close()
