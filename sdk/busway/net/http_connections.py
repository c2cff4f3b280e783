"""Connections of the HTTP server: their timeouts and their number.

Here: timeouts for unfinished requests and unread responses.
Not here: serving and stopping (`http_server`). uvicorn closes idle connections after a response, but keeps those that
never send a request or never end it.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

logger: logging.Logger = logging.getLogger("busway.http")

_DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""Bytes a client may still send after an early response: closed sooner, it would not read the response."""
_REQUEST_TIMEOUT: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_UNAVAILABLE: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits for clients.

    Attributes:
        request_s: from the first byte of a request to its last; and for an unread response.
        bytes_per_s: minimum rate beyond that: so many bytes give another second.
        connections: maximum; beyond it, the one quiet for the longest is closed.
    """

    request_s: float = 20.0
    bytes_per_s: int = 16 * 1024
    connections: int = 1_000


PATIENCE: Final = Patience()


class Connection(H11Protocol):
    def __init__(self, *uvicorn: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*uvicorn, **more)
        self._patience = patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.quiet_since: float = self.loop.time()
        self.unread_since: float = self.quiet_since
        self.begun: bool = False
        self.received: int = 0
        self.unread: int = 0
        super().connection_made(transport)  # type: ignore[arg-type]
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        _make_room(self.connections, self, self._patience.connections)

    def data_received(self, data: bytes) -> None:
        if not self.begun:
            self.begun, self.received, self.quiet_since = True, 0, self.loop.time()
        self.received += len(data)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self.begun = False

    def on_response_complete(self) -> None:
        self.quiet_since, self.received = self.loop.time(), 0
        super().on_response_complete()
        self.begun = self.is_quiet and bool(self.conn.trailing_data[0])

    @property
    def is_quiet(self) -> bool:
        """Whether no response is in progress: the client has to send."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    @property
    def may_go(self) -> bool:
        """Whether it can be closed to make room."""
        return self.is_quiet and not self.transport.is_closing()

    def is_late(self, now: float) -> bool:
        patience = self._patience
        unread = self.transport.get_write_buffer_size()
        if not 0 < self.unread <= unread:
            self.unread_since = now
        self.unread = unread
        if unread and now - self.unread_since > patience.request_s:
            return True
        if not self.begun:
            return False
        if self.flow.read_paused:  # the application does not read
            self.quiet_since, self.received = now, 0
            return False
        if self.cycle is not None and self.cycle.response_complete and self.received > _DISCARDED_BYTES:
            return True
        return now - self.quiet_since > patience.request_s + self.received / patience.bytes_per_s

    def give_up(self, said: bytes = _REQUEST_TIMEOUT) -> None:
        """Close it; send `said` first unless a response is in progress or unread."""
        if self.unread:
            self.transport.abort()
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(said)
        self.transport.close()


def close_late(connections: Collection[Any], now: float) -> None:
    late = [connection for connection in connections if isinstance(connection, Connection) and connection.is_late(now)]
    for connection in late:
        connection.give_up()
    if late:
        logger.warning("%d connections are closed: their clients neither ended a request nor read an answer", len(late))


def _make_room(connections: Collection[Any], new: Connection, most: int) -> None:
    if len(connections) <= most:
        return
    quiet = [
        connection
        for connection in connections
        if connection is not new and isinstance(connection, Connection) and connection.may_go
    ]
    going = min(quiet, key=lambda connection: connection.quiet_since, default=new)
    logger.warning("more than %d connections: one is closed", most)
    going.give_up(_UNAVAILABLE)
