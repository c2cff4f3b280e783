"""One client's connection: frames in, answers out in the order of the requests.

What lives here: the asyncio protocol with its bounds. What does not: what a request means (`dispatch`). A connection that
sends rubbish is closed and costs nobody else anything; one that does not read its answers is no longer read from.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

from busway_bus.handlers.context import CloseConnection, NodeServices
from busway_bus.kernel.config import Endpoint
from busway_bus.kernel.limits import RESPONSE_BYTES_QUEUED_MAX
from busway_bus.server.dispatch import BadRequest, Pending, dispatch
from busway_bus.server.intake import Intake
from busway_protocol.compile import Chunk
from busway_protocol.errors import FrameRefused

log = logging.getLogger("busway.server")

_REQUESTS_PIPELINED_MAX = 64
_GATHERED_MAX = 16 * 1024
"""Answers up to so many bytes are written together; a larger one goes out at once, so that back-pressure is felt."""
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC")


class Connection(asyncio.BufferedProtocol):
    """Speaks with one client.

    Args:
        advertised: where it finds this node, as its listener tells.
        scratch: the read buffer of this event loop's connections (see `intake`).
        on_close: called with this connection when it is gone.
        complain: logs one line about a bad peer; rate-limited by the server.
    """

    def __init__(
        self,
        node: NodeServices,
        *,
        advertised: Endpoint,
        max_request_bytes: int,
        scratch: memoryview,
        on_open: Callable[["Connection"], bool],
        on_close: Callable[["Connection"], None],
        complain: Callable[[str, str], None],
    ) -> None:
        self._node = node
        self._advertised = advertised
        self._intake = Intake(max_request_bytes, scratch)
        self._on_open = on_open
        self._on_close = on_close
        self._complain = complain
        self._requests: deque[memoryview] = deque()
        self._answers: deque[asyncio.Task[list[Chunk] | None] | list[Chunk]] = deque()
        self._blocked = False
        self._paused_by_peer = False
        self._reading = True
        self._transport: asyncio.Transport | None = None
        self.host = ""
        self.last_active = 0.0
        self.partial_since: float | None = None

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if isinstance(peer, tuple) else "local"
        self.last_active = asyncio.get_running_loop().time()
        transport.set_write_buffer_limits(high=RESPONSE_BYTES_QUEUED_MAX)
        if not self._on_open(self):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._intake.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take in bytes and answer what they complete."""
        now = asyncio.get_running_loop().time()
        self.last_active = now
        try:
            frames = self._intake.received(nbytes)
        except FrameRefused as refused:
            self._refuse(_guess(refused))
            return
        self.partial_since = (self.partial_since or now) if self._intake.partial and not frames else None
        if frames:
            self._requests.extend(frames)
            self._pump()

    def eof_received(self) -> bool:
        """The client will send no more."""
        return False

    def pause_writing(self) -> None:
        """The client does not read: stop reading from it."""
        self._paused_by_peer = True
        self._throttle()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._paused_by_peer = False
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what is under way."""
        self._transport = None
        self._requests.clear()
        for answer in self._answers:
            if isinstance(answer, asyncio.Task):
                answer.cancel()
        self._answers.clear()
        self._on_close(self)

    # The order of things

    @property
    def busy(self) -> bool:
        """Whether requests are under way."""
        return bool(self._requests or self._answers)

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End after what is written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def _pump(self) -> None:
        ready: list[Chunk] = []
        try:
            self._work(ready)
        finally:
            self._write(ready)
        self._throttle()

    def _work(self, ready: list[Chunk]) -> None:
        """Answer what may be answered now; answers that are there already are gathered, to be written together."""
        while self._requests and not self._blocked and not self._paused_by_peer:
            if len(self._answers) >= _REQUESTS_PIPELINED_MAX:
                break
            try:
                answer = dispatch(self._requests.popleft(), self.host, self._node, self._advertised)
            except (BadRequest, CloseConnection) as problem:
                self._refuse(str(problem))
                return
            except Exception:
                log.exception(
                    "a request from %s failed on a mistake of this broker; the connection is closed", self.host
                )
                self.abort()
                return
            if isinstance(answer, Pending):
                task = asyncio.ensure_future(answer.answer)
                self._answers.append(task)
                self._blocked = not answer.pipelined
                task.add_done_callback(self._answered)
            elif answer is not None:
                if self._answers:
                    self._answers.append(answer)
                else:
                    ready.extend(answer)
                    if sum(map(len, answer)) > _GATHERED_MAX:
                        self._write(ready)
                        ready.clear()

    def _answered(self, task: "asyncio.Task[list[Chunk] | None]") -> None:
        if task.cancelled() or self._transport is None:
            return
        problem = task.exception()
        if isinstance(problem, CloseConnection):
            self._refuse(str(problem))
            return
        if problem is not None:
            log.error("a request from %s failed on a mistake of this broker", self.host, exc_info=problem)
            self.abort()
            return
        while self._answers:
            first = self._answers[0]
            if isinstance(first, asyncio.Task):
                if not first.done():
                    break
                chunks = first.result()
            else:
                chunks = first
            self._answers.popleft()
            if chunks is not None:
                self._write(chunks)
        if not self._answers:
            self._blocked = False
        self._pump()

    def _write(self, chunks: list[Chunk]) -> None:
        if chunks and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(chunks)

    def _throttle(self) -> None:
        """Read on only while what was read can be worked on."""
        wanted = not self._paused_by_peer and len(self._requests) < _REQUESTS_PIPELINED_MAX
        if wanted != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _refuse(self, reason: str) -> None:
        self._complain(self.host, reason)
        self._requests.clear()
        self.abort()


def _guess(refused: FrameRefused) -> str:
    """What the peer probably speaks."""
    if refused.head.startswith(_HTTP):
        return "an HTTP request came to the Kafka port; HTTP is spoken by the registry"
    if refused.head[:2] == b"\x16\x03":
        return "a TLS hello came to a plaintext port; set security.protocol=PLAINTEXT in the client"
    if refused.size < 0:
        return f"a negative frame size came ({refused.size}); this is no Kafka client"
    return f"a frame of {refused.size} bytes was announced, socket.request.max.bytes allows {refused.max_size}"
