"""From a frame to its handler, and to the response's bytes.

Here: header, version check, decode, handler, encode.
Not here: sockets and the order of responses (`connection`). An unreadable request ends its connection, as in Kafka; an
unsupported version of ApiVersions gets a response.
"""

import asyncio
import struct
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from busway_bus.handlers.common.context import Encoded, Large, NodeServices, Peer, RequestContext
from busway_bus.handlers.common.forwarded import FORWARDED, Forwarded, forward
from busway_bus.handlers.common.pending_response import PendingResponse
from busway_bus.handlers.registry import HANDLERS, ON_CONTROLLER_LISTENERS, Handler
from busway_bus.kernel.limits import GATHERED_BYTES_MAX
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.server.stream import Piece
from busway_protocol.apis import ApiKey, api, response_header_version
from busway_protocol.compile import Chunk, decode_from, decoder, encoder
from busway_protocol.errors import ErrorCode, ProtocolError
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.cluster import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from busway_bus.handlers.for_controllers.services import ControllerServices

_REQUEST_HEAD: Final = struct.Struct(">Iih")
"""API key with version, correlation id, client id's length."""
_PREFIX: Final = struct.Struct(">Ii")
"""API key and version, correlation id: the same in every header version."""
_RESPONSE_HEADS: Final = (struct.Struct(">ii"), struct.Struct(">iix"))
"""Size and response header, by its version.

From version 1 with an empty set of tagged fields.
"""
_SIZE_BYTES: Final = 4
_MALFORMED: Final = (ProtocolError, struct.error, IndexError, UnicodeDecodeError)
"""Errors of a compiled decoder."""
_LONG_REQUEST_BYTES: Final = 1 << 18
"""Size from which decoding and handling are in different loop iterations."""


class BadRequest(ProtocolError):
    """A request that ends its connection; the text is for the log."""


class Route(NamedTuple):
    """How requests of one API and version are handled.

    Attributes:
        flexible: whether tagged fields follow the client id.
        head: packs size and response header.
        pipelined: the connection's next request may begin before the response.
    """

    name: str
    version: int
    flexible: bool
    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    handle: Callable[[Any, RequestContext], Any]
    response: type[Any]
    encode: Callable[[Any], list[Chunk]]
    head: struct.Struct
    pipelined: bool

    def pieces(self, response: Any, correlation_id: int) -> list[Piece]:
        return self.framed(response.body if type(response) is Encoded else self.encode(response), correlation_id)

    def framed(self, body: list[Chunk], correlation_id: int) -> list[Piece]:
        first, *others = body
        size = self.head.size - _SIZE_BYTES + len(first) + sum(map(len, others))
        head = self.head.pack(size, correlation_id)
        return [head + first, *others] if len(first) <= GATHERED_BYTES_MAX else [head, first, *others]


class Reply:
    """A pending response, in its connection's order."""

    __slots__ = ("_correlation_id", "_ended", "_pending", "_route", "_task")

    def __init__(
        self,
        route: Route,
        correlation_id: int,
        answer: PendingResponse | Coroutine[Any, Any, Any],
        *,
        long: bool = False,
    ) -> None:
        self._route = route
        self._correlation_id = correlation_id
        self._task: asyncio.Task[None] | None = None
        self._ended: Callable[[], None] | None = None
        if isinstance(answer, PendingResponse):
            self._pending = answer
            return
        self._pending = PendingResponse()
        self._task = asyncio.create_task(self._carry_out(answer, long=long))
        # A task cancelled before its first step does not close the handler's coroutine.
        self._task.add_done_callback(partial(_close, answer))

    async def _carry_out(self, answer: Coroutine[Any, Any, Any], *, long: bool) -> None:
        try:
            if long:
                await asyncio.sleep(0)  # clients that sent during the decoding are read first
            response = await answer
            if isinstance(response, Large):
                try:
                    body = await off_loop(partial(self._route.encode, response.response))
                finally:
                    if response.over is not None:
                        response.over()
                if response.keep is not None:
                    response.keep(body)
                response = self._route.framed(body, self._correlation_id)
        except Exception as problem:  # noqa: BLE001 - passed to the connection
            self._pending.fail(problem)
        else:
            self._pending.complete(response)

    @property
    def pipelined(self) -> bool:
        return self._route.pipelined

    @property
    def needs_request(self) -> bool:
        return self._pending.needs_request

    def when_free(self, call: Callable[[], None]) -> None:
        self._pending.when_free(call)

    @property
    def done(self) -> bool:
        return self._pending.done

    @property
    def there(self) -> list[Piece] | None:
        response = self._pending.response
        return response if type(response) is list else None

    def when_done(self, call: Callable[[], None]) -> None:
        self._pending.when_done(call)

    def pieces(self) -> list[Piece] | None:
        """Return the encoded response, None if none is owed.

        Raises:
            Exception: raised by the handler.
        """
        if self._ended is not None:
            self._ended()
            self._ended = None
        if self._pending.problem is not None:
            raise self._pending.problem
        response = self._pending.response
        if response is None or type(response) is list:
            return response
        return self._route.pieces(response, self._correlation_id)

    def when_read(self, ended: Callable[[], None]) -> None:
        """Call `ended` once when the response is taken for the socket."""
        self._ended = ended

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _close(answer: Coroutine[Any, Any, Any], _: "asyncio.Task[None]") -> None:
    answer.close()


class Dispatcher:
    """Handles the requests of one connection.

    Args:
        advertised: this node's address for the client.
        routes: of the listener; a broker's by default.
    """

    def __init__(
        self,
        client_host: str,
        node: "NodeServices | ControllerServices",
        advertised: Endpoint,
        peer: Peer,
        routes: "Routes | None" = None,
    ) -> None:
        self._client_host = client_host
        self._routes = BROKER if routes is None else routes
        self._known = self._routes.known
        self._node = cast("NodeServices", node)
        self._advertised = advertised
        self._counters = node.requests
        self._peer = peer
        self._client_id = b""
        self._contexts: dict[int, RequestContext] = {}
        """By version, for the last client id."""

    def __call__(self, frame: memoryview) -> list[Piece] | Reply | None:
        """Handle a request; return its response, a Reply, or None without one.

        BadRequest: the connection must end.
        """
        if len(frame) < _REQUEST_HEAD.size:
            return self._routes.short(frame)
        api_and_version, correlation_id, client_id_bytes = _REQUEST_HEAD.unpack_from(frame)
        route = self._known.get(api_and_version) or self._routes.find(api_and_version)
        if route is None:
            return self._routes.unsupported(correlation_id)
        counters = self._counters
        counters.counts[api_and_version] += 1
        begun = 0.0 if counters.clock is None else counters.clock()
        try:
            position = _REQUEST_HEAD.size + max(client_id_bytes, 0)
            client_id = bytes(frame[_REQUEST_HEAD.size : position])
            if client_id_bytes < 0 or len(client_id) < client_id_bytes or (route.flexible and frame[position]):
                header, position = decode_from(RequestHeader, 2 if route.flexible else 1, frame, 0)
                context = self._context(route.version, header.client_id)
            else:
                position += route.flexible
                if client_id != self._client_id:
                    self._contexts.clear()
                    self._client_id = client_id
                context = self._contexts.get(route.version) or self._remembered(route.version)
            # Bytes after the message are ignored, as in Kafka: librdkafka 2.16 sends three after Metadata v13 for all topics.
            request, _ = route.decode(frame, position, len(frame))
        except _MALFORMED as problem:
            raise BadRequest(f"{route.name} v{route.version}: {problem}") from None
        answer = route.handle(request, context)
        if type(answer) is route.response or type(answer) is Encoded:
            pieces = route.pieces(answer, correlation_id)
            if counters.clock is not None:
                counters.ended(api_and_version, begun)
            return pieces
        if answer is None:
            if counters.clock is not None:
                counters.ended(api_and_version, begun)
            return None
        reply = Reply(route, correlation_id, answer, long=len(frame) >= _LONG_REQUEST_BYTES and not route.pipelined)
        if counters.clock is not None:
            reply.when_read(partial(counters.ended, api_and_version, begun))
        return reply

    def _remembered(self, version: int) -> RequestContext:
        context = self._contexts[version] = self._context(version, self._client_id.decode())
        return context

    def _context(self, version: int, client_id: str | None) -> RequestContext:
        return RequestContext(
            api_version=version,
            client_id=client_id,
            client_host=self._client_host,
            advertised=self._advertised,
            peer=self._peer,
            node=self._node,
        )


class Routes:
    """The APIs of a listener.

    Args:
        forwarded: those that the cluster's active controller handles.

    Attributes:
        known: routes by API key and version, each with its codecs made on first use.
    """

    def __init__(self, handlers: Mapping[int, Handler], forwarded: Collection[int] = ()) -> None:
        self._handlers, self._forwarded = handlers, forwarded
        self.known: dict[int, Route] = {}

    def find(self, api_and_version: int) -> Route | None:
        """Return a route; None for an unsupported version of ApiVersions.

        BadRequest: it is not supported.
        """
        key, version = struct.unpack(">hh", api_and_version.to_bytes(4, "big"))
        handler = self._handlers.get(key)
        if handler is None:
            raise BadRequest(f"API key {key} is not served")
        if not handler.min_version <= version <= handler.max_version:
            if key == ApiKey.API_VERSIONS:
                return None
            raise BadRequest(f"{ApiKey(key).name} version {version} is not served")
        messages = api(key)
        decode, handle = decoder(messages.request, version), handler.handle
        if key in self._forwarded:
            decode, handle = partial(_with_frame, decode), partial(forward, key, handle)
        route = self.known[api_and_version] = Route(
            name=messages.request.__name__,
            version=version,
            flexible=version >= messages.flexible_from,
            decode=decode,
            handle=handle,
            response=messages.response,
            encode=encoder(messages.response, version),
            head=_RESPONSE_HEADS[response_header_version(key, version)],
            pipelined=handler.pipelined,
        )
        return route

    def short(self, frame: memoryview) -> list[Piece]:
        """Handle a header without client id.

        Only an unsupported version of ApiVersions gets a response, others BadRequest.
        """
        if len(frame) >= _PREFIX.size:
            api_and_version, correlation_id = _PREFIX.unpack_from(frame)
            if (self.known.get(api_and_version) or self.find(api_and_version)) is None:
                return self.unsupported(correlation_id)
        raise BadRequest(f"a request of {len(frame)} bytes has no header")

    def unsupported(self, correlation_id: int) -> list[Piece]:
        """Answer an unknown version of ApiVersions, readable for every client (KIP-511)."""
        served = self._handlers[ApiKey.API_VERSIONS]
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(
                    api_key=ApiKey.API_VERSIONS, min_version=served.advertised_min, max_version=served.max_version
                )
            ],
        )
        body = encoder(ApiVersionsResponse, 0)(response)
        size = _RESPONSE_HEADS[0].size - _SIZE_BYTES
        return [_RESPONSE_HEADS[0].pack(size + sum(map(len, body)), correlation_id), *body]


def _with_frame(
    decode: Callable[[memoryview, int, int], tuple[Any, int]], frame: memoryview, position: int, end: int
) -> tuple[Forwarded, int]:
    request, position = decode(frame, position, end)
    return Forwarded(bytes(frame), request), position


BROKER: Final = Routes(HANDLERS)
BROKERS_CONTROLLER: Final = Routes({key: HANDLERS[key] for key in ON_CONTROLLER_LISTENERS})
"""Of the controller's listeners on a node that is its only voter."""
CLUSTERED_BROKER: Final = Routes(HANDLERS, FORWARDED)
"""Of a broker's listeners in a cluster."""
