"""One client's connection: frames in, responses out in request order.

Here: the requests of one client and their limits.
Not here: its socket (`stream`), handlers (`dispatch`). A connection that does not read responses is not read from.
Requests received whole are completed after a disconnect, as in Kafka; only pure waits end (`Peer`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from busway_bus.handlers.common.context import CloseConnection, NodeServices, Peer, PeerGone
from busway_bus.kernel.limits import (
    GATHERED_BYTES_MAX,
    PARTIAL_REQUEST_CONTENDED_MS,
    PARTIAL_REQUEST_TIMEOUT_MS,
    REQUEST_BYTES_PER_S_MIN,
    REQUEST_BYTES_QUEUED_MAX,
    REQUEST_BYTES_WORKED_MAX,
    REQUESTS_PIPELINED_MAX,
)
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.log.file_slice import FileSlice
from busway_bus.server.dispatch import BadRequest, Dispatcher, Reply, Routes
from busway_bus.server.frame_reader import FrameReader
from busway_bus.server.request_memory import ConnectionQuota, RequestMemory
from busway_bus.server.stream import Piece, Stream
from busway_protocol.errors import FrameRefused

if TYPE_CHECKING:
    from busway_bus.handlers.for_controllers.services import ControllerServices

logger = logging.getLogger("busway.server")

_MISTAKE = "a request from %s failed on a mistake of this broker; the connection is closed"
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC")


class Connection:
    """The connection of one client; the `Owner` of its stream.

    Args:
        routes: of its listener; a broker's by default.
        scratch: the event loop's read buffer (see `frame_reader`).
        memory: limits the requests of all connections.
        on_close: called once it is closed and all its requests are done.
        warn_about_peer: logs a line, rate-limited by the server.
    """

    def __init__(
        self,
        node: "NodeServices | ControllerServices",
        stream: Stream,
        *,
        routes: Routes | None = None,
        advertised: Endpoint,
        max_request_bytes: int,
        scratch: memoryview,
        memory: RequestMemory,
        on_close: Callable[["Connection"], None],
        warn_about_peer: Callable[[str, str], None],
    ) -> None:
        self._node = node
        self._stream = stream
        stream.owner = self
        self._intake = FrameReader(max_request_bytes, scratch)
        self._scratch_bytes = len(scratch)
        self._quota = ConnectionQuota(memory, self._throttle)
        self._on_close = on_close
        self._warn_about_peer = warn_about_peer
        self._requests: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._blocking_bytes = 0
        self._working_bytes = 0
        self._answers: deque[Reply | list[Piece]] = deque()
        self._writing_soon = False
        self._blocked = False
        self._working = False
        self._waits_for_turn = False
        self._reading = True
        self._peer = Peer()
        self._dispatch = Dispatcher(stream.host, node, advertised, self._peer, routes)
        self._finishing = False
        self._ended_here = False
        self._gone = False
        self.host = stream.host
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        self._partial_since: float | None = None
        self._paused_at = 0.0

    # `Owner`

    def buffer(self) -> memoryview:
        return self._intake.buffer(self._quota.allowance(self._scratch_bytes))

    def may_read(self, later: Callable[[], None]) -> bool:
        """Whether to read now. Reads take turns, as work does."""
        if self._node.scheduler.long_over():
            self._node.scheduler.wait(self.host, later)
            return False
        return True

    def received(self, count: int) -> None:
        now = self._loop.time()
        self.last_active = now
        try:
            frames = self._intake.received(count)
        except FrameRefused as refused:
            self._refuse(_guess(refused))
            return
        if not self._intake.partial:
            self._partial_since = None
        elif frames or self._partial_since is None:
            self._partial_since = now
        if frames:
            self._requests.extend(frames)
            self._queued_bytes += sum(map(len, frames))
            self._pump()
        else:
            self._throttle()

    def write_on(self) -> None:
        self._stream.write()
        if not self._stream.waiting:
            self._pump()

    def unreadable(self, problem: OSError) -> None:
        """Close: the sent part of the response is useless."""
        logger.error("an answer to %s cannot be read from its log file: %s", self.host, problem)
        self.abort()

    def cut_off(self) -> None:
        """Close: others need its memory."""
        self._warn_about_peer(self.host, "its answers were not read while others needed the memory")
        self.abort()

    def lost(self) -> None:
        self._gone = True
        self._intake.drop()
        self._peer.closed(by_client=not (self._ended_here or self._finishing), was_reset=self._stream.was_reset)
        self._peer.left()
        self._pump()

    # Requests and responses

    @property
    def busy(self) -> bool:
        return bool(self._requests or self._answers) or self._stream.waiting

    def idle_since(self, now: float) -> float | None:
        """Return the loop time of the last activity; None while requests run."""
        self._stream.look(now)
        if self._stream.waiting:
            return max(self.last_active, self._stream.taken_at)
        return None if self.busy else self.last_active

    def abort(self) -> None:
        self._ended_here = True
        if not self._gone:
            self._stream.abort()

    def close(self) -> None:
        self._ended_here = True
        if not self._gone:
            self._stream.close()

    def overdue(self, now: float) -> bool:
        """Whether a partial request stalls, or is slower than `REQUEST_BYTES_PER_S_MIN`.

        Time in which this broker does not read is not counted. The timeout is shorter while others wait for memory.
        """
        if self._partial_since is None or not self._reading:
            return False
        silence_ms = PARTIAL_REQUEST_CONTENDED_MS if self._quota.contended else PARTIAL_REQUEST_TIMEOUT_MS
        if now - self.last_active > silence_ms / 1000:
            return True
        allowed_s = PARTIAL_REQUEST_TIMEOUT_MS / 1000 + self._intake.arrived / REQUEST_BYTES_PER_S_MIN
        return now - self._partial_since > allowed_s

    def finish(self) -> None:
        """Stop reading, end pure waits, complete the other requests and close."""
        self._finishing = True
        self._peer.left()
        self._pump()

    def give_up(self) -> None:
        """Close at once and drop all requests."""
        self._forget_requests()
        self._peer.left()
        for answer in self._answers:
            if isinstance(answer, Reply):
                answer.cancel()
        self._answers.clear()
        self.abort()

    def _next_turn(self) -> None:
        self._waits_for_turn = False
        self._pump(granted=True)

    def _pump(self, *, granted: bool = False) -> None:
        if self._requests:
            ready: list[Piece] = []
            self._working = True
            try:
                self._work(ready, granted=granted)
            finally:
                self._working = False
                if ready:
                    self._write(ready)
        self._throttle()
        if not (self._gone or self._finishing) or self.busy:
            return
        if self._gone:
            self._on_close(self)
        else:
            self._stream.close()

    def _work(self, ready: list[Piece], *, granted: bool) -> None:
        """Handle requests; gather immediate responses in `ready` for one write.

        Args:
            granted: whether it is this connection's turn for the first one.
        """
        while self._requests and not self._blocked and not self._stream.waiting and not self._waits_for_turn:
            if len(self._answers) >= REQUESTS_PIPELINED_MAX:
                break
            if not granted and self._node.scheduler.over():
                self._waits_for_turn = True
                self._node.scheduler.wait(self.host, self._next_turn)
                break
            granted = False
            frame = self._requests.popleft()
            self._queued_bytes -= len(frame)
            try:
                answer = self._dispatch(frame)
            except PeerGone:
                continue
            except (BadRequest, CloseConnection) as problem:
                self._refuse(str(problem))
                return
            except Exception:
                logger.exception(_MISTAKE, self.host)
                self._forget_requests()
                self.abort()
                return
            if isinstance(answer, Reply):
                self._await(answer, len(frame))
            elif answer is not None:
                if self._answers:
                    self._answers.append(answer)
                    self._count_queued()
                else:
                    ready.extend(answer)
                    if sum(map(len, answer)) > GATHERED_BYTES_MAX:
                        self._write(ready)
                        ready.clear()

    def _await(self, answer: Reply, request_bytes: int) -> None:
        self._answers.append(answer)
        if not answer.pipelined:
            self._blocked = True
            self._blocking_bytes = request_bytes
        elif answer.needs_request:
            self._working_bytes += request_bytes
            answer.when_free(partial(self._freed, request_bytes))
        answer.when_done(self._answered)

    def _freed(self, count: int) -> None:
        self._working_bytes -= count
        self._throttle()

    def _answered(self) -> None:
        """Write a lone response at once, others together: this is called in the middle of other work."""
        if self._writing_soon:
            return
        lone = len(self._answers) == 1 and not (self._requests or self._working or self._gone or self._finishing)
        if lone and not self._node.scheduler.over():  # else many at once would be one long turn
            self._write_answers()  # without requests that would begin within that work
        else:
            self._writing_soon = True
            self._loop.call_soon(self._write_answers)

    def _write_answers(self) -> None:
        self._writing_soon = False
        ready: list[Piece] = []
        size = 0
        while self._answers:
            answer = self._answers[0]
            if isinstance(answer, Reply) and not answer.done:
                break
            self._answers.popleft()
            pieces = self._pieces(answer) if isinstance(answer, Reply) else answer
            ready += pieces
            size += sum(map(len, pieces))
            if size > GATHERED_BYTES_MAX:
                self._write(ready)
                ready, size = [], 0
        if ready:
            self._write(ready)
        if not self._answers:
            self._blocked = False
            self._blocking_bytes = 0
        if self._blocked or self._stream.owed:
            self._count_queued()
        self._pump()

    def _count_queued(self) -> None:
        """Count available responses behind a pending one; drop them after a disconnect."""
        if self._gone:
            self._answers = deque(answer for answer in self._answers if isinstance(answer, Reply) and not answer.done)
        self._stream.queue_bytes(
            sum(
                sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice))
                for answer in self._answers
                if (pieces := answer.there if isinstance(answer, Reply) else answer)
            )
        )

    def _pieces(self, reply: Reply) -> list[Piece]:
        try:
            return reply.pieces() or []
        except PeerGone:
            pass
        except CloseConnection as problem:
            self._refuse(str(problem))
        except Exception:
            logger.exception(_MISTAKE, self.host)
            self._forget_requests()
            self.abort()
        return []

    def _write(self, pieces: list[Piece]) -> None:
        if not self._stream.closing:
            self._stream.put(pieces)

    def _throttle(self) -> None:
        """Read only while there is room for more requests and memory."""
        waiting = self._queued_bytes + self._blocking_bytes + self._working_bytes
        intake = self._intake
        self._quota.update(intake.held + waiting, intake.size if intake.size > waiting else waiting)
        may_read = (
            not self._finishing
            and not self._stream.waiting
            and len(self._requests) < REQUESTS_PIPELINED_MAX
            and self._queued_bytes < REQUEST_BYTES_QUEUED_MAX
            and self._working_bytes < REQUEST_BYTES_WORKED_MAX
            and self._quota.may_read()
        )
        if may_read != self._reading and not self._stream.closing:
            self._reading = may_read
            now = self._loop.time()
            if may_read:
                if self._partial_since is not None:
                    self._partial_since += now - self._paused_at
                self.last_active = now
                self._stream.resume_reading()
            else:
                self._paused_at = now
                self._stream.pause_reading()

    def _refuse(self, reason: str) -> None:
        self._warn_about_peer(self.host, reason)
        self._forget_requests()
        self.abort()

    def _forget_requests(self) -> None:
        self._requests.clear()
        self._queued_bytes = 0


def _guess(refused: FrameRefused) -> str:
    if refused.head.startswith(_HTTP):
        return "an HTTP request came to the Kafka port; HTTP is spoken by the registry"
    if refused.head[:2] == b"\x16\x03":
        return "a TLS hello came to a plaintext port; set security.protocol=PLAINTEXT in the client"
    if refused.size < 0:
        return f"a negative frame size came ({refused.size}); this is no Kafka client"
    return f"a frame of {refused.size} bytes was announced, socket.request.max.bytes allows {refused.max_size}"
