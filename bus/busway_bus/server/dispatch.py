"""From a frame to a handler and back to what goes over the wire.

What lives here: header, version check, decode, handler, encode. What does not: sockets and their order (`connection`).
A request that cannot be read ends its connection, as in Kafka; one in a version that is not served is answered.
"""

import asyncio
import struct
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Any, Final

from busway_bus.handlers.context import Large, NodeServices, Peer, RequestContext
from busway_bus.handlers.registry import HANDLERS
from busway_bus.kernel.config import Endpoint
from busway_bus.replication.cleaning import off_loop
from busway_bus.server.outbox import Piece
from busway_protocol.apis import ApiKey, api, response_header_version
from busway_protocol.compile import decode_from, encode_chunks
from busway_protocol.errors import ErrorCode, ProtocolError
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.cluster import ApiVersion, ApiVersionsResponse

REQUEST_PREFIX_BYTES: Final = 8
CORRELATION_BYTES: Final = 4
_HEAD_0: Final = struct.Struct(">ii")
_HEAD_1: Final = struct.Struct(">iiB")


class BadRequest(ProtocolError):
    """A request that ends its connection; the text is for the log."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer that is not there yet. `pipelined` lets the connection's next request begin meanwhile."""

    answer: Awaitable[Any]
    key: int
    version: int
    correlation_id: int
    pipelined: bool

    def begin(self) -> "asyncio.Task[list[Piece] | None]":
        """Have it answered; a task that is cancelled before it comes to its first step closes the handler's coroutine too."""
        task = asyncio.ensure_future(self._pieces())
        if iscoroutine(self.answer):
            task.add_done_callback(partial(_close, self.answer))
        return task

    async def _pieces(self) -> list[Piece] | None:
        response = await self.answer
        if isinstance(response, Large):
            return await off_loop(partial(_chunks, response.response, self.key, self.version, self.correlation_id))
        return None if response is None else _chunks(response, self.key, self.version, self.correlation_id)


def _close(answer: Coroutine[Any, Any, Any], _: "asyncio.Task[list[Piece] | None]") -> None:
    answer.close()


def dispatch(
    frame: memoryview, client_host: str, node: NodeServices, advertised: Endpoint, peer: Peer
) -> list[Piece] | Pending | None:
    """Answer one request: its pieces, None where no answer is owed, or a Pending.

    Raises:
        BadRequest: the connection has to end.
    """
    if len(frame) < REQUEST_PREFIX_BYTES:
        raise BadRequest(f"a request of {len(frame)} bytes has no header")
    key = int.from_bytes(frame[0:2], "big", signed=True)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    handler = HANDLERS.get(key)
    if handler is None:
        raise BadRequest(f"API key {key} is not served")
    if not handler.min_version <= version <= handler.max_version:
        return _unsupported(key, version, correlation_id)
    known = api(key)
    try:
        header, position = decode_from(RequestHeader, 2 if version >= known.flexible_from else 1, frame, 0)
        # Bytes behind the message are let pass, as Kafka does: librdkafka 2.16 leaves three behind Metadata v13 for all topics.
        request, _ = decode_from(known.request, version, frame, position)
    except ProtocolError as problem:
        raise BadRequest(str(problem)) from None
    context = RequestContext(
        api_version=version,
        client_id=header.client_id,
        client_host=client_host,
        advertised=advertised,
        peer=peer,
        node=node,
    )
    answer = handler.handle(request, context)
    if isawaitable(answer):
        return Pending(answer, key, version, correlation_id, handler.pipelined)
    return None if answer is None else _chunks(answer, key, version, correlation_id)


def _chunks(response: Any, key: int, version: int, correlation_id: int) -> list[Piece]:
    body: list[Piece] = [*encode_chunks(response, version)]
    size = CORRELATION_BYTES + sum(map(len, body))
    # The response header in short: a correlation id, and from version 1 on an empty set of tagged fields.
    if response_header_version(key, version) == 0:
        return [_HEAD_0.pack(size, correlation_id), *body]
    return [_HEAD_1.pack(size + 1, correlation_id, 0), *body]


def _unsupported(key: int, version: int, correlation_id: int) -> list[Piece]:
    """ApiVersions in an unknown version gets an answer that every client can read (KIP-511); others end."""
    if key != ApiKey.API_VERSIONS:
        raise BadRequest(f"{ApiKey(key).name} version {version} is not served")
    served = HANDLERS[key]
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=key, min_version=served.advertised_min, max_version=served.max_version)],
    )
    return _chunks(response, key, 0, correlation_id)
