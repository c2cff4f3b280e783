"""Connections that cost next to nothing, so that the broker is what limits them.

Here: producers that send the same frames again and again, readers that throw away what they get, and the one loop that
drives them all.
Not here: what the frames are (`frames`), which loads there are (`limits`).
"""

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from benchmarks.clients import LoadFailed
from benchmarks.frames import Batch, Fetch

_DISCARD: Final = getattr(socket, "MSG_TRUNC", 0)
"""Linux throws received bytes away without copying them."""
_WAIT_S: Final = 60.0
_SIZE: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")
_RETRIED: Final = frozenset({3, 6})
"""Unknown topic or partition, not leader: what a broker says for a moment after it has reported a new topic."""
_body = memoryview(bytearray(1024 * 1024))


class Client:
    """One connection.

    Attributes:
        stopping: no new request is sent.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.stopping = False
        self._unsent: memoryview = memoryview(b"")

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        raise NotImplementedError

    @property
    def blocked(self) -> bool:
        """Whether the broker does not take the payload."""
        return bool(self._unsent)

    def begin(self) -> None:
        """Send the first requests."""
        raise NotImplementedError

    def readable(self) -> None:
        """Take in what came."""
        raise NotImplementedError

    def writable(self) -> None:
        """Send on."""
        if self._unsent:
            self._unsent = self._unsent[self._send(self._unsent) :]

    def _put(self, data: bytes) -> None:
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        count = self._send(data)
        if count < len(data):
            self._unsent = memoryview(data)[count:]

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0


class Producer(Client):
    """Sends frames in turn, so many at a time without an answer; with `in_flight=0` only on request.

    Attributes:
        answered: how many were acknowledged.
        taken_s: how long each took, from when it was due.
    """

    def __init__(self, bootstrap_servers: str, frames: Sequence[bytes], topic: str, *, in_flight: int) -> None:
        super().__init__(bootstrap_servers)
        self._frames = frames
        self._in_flight = in_flight
        self._next = 0
        self._due: deque[tuple[float, bytes]] = deque()
        self._came = bytearray()
        self._error_at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        self.answered = 0
        self.taken_s: list[float] = []

    @property
    def busy(self) -> bool:
        """Whether an acknowledgement is owed."""
        return bool(self._due)

    def begin(self) -> None:
        """Send the first requests."""
        for _ in range(self._in_flight):
            self.send(time.perf_counter())

    def send(self, due: float) -> None:
        """Send the next frame, which was due then."""
        self._put_due(due, self._frames[self._next])
        self._next = (self._next + 1) % len(self._frames)

    def _put_due(self, due: float, frame: bytes) -> None:
        self._due.append((due, frame))
        self._put(frame)

    def readable(self) -> None:
        """Take in acknowledgements, and send as many more requests."""
        data = self.socket.recv(256 * 1024)
        if not data:
            raise LoadFailed("the broker closed the connection of a producer")
        self._came += data
        now = time.perf_counter()
        position = 0
        while len(self._came) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._came, position)
            if len(self._came) - position < _SIZE.size + size:
                break
            (error,) = _ERROR.unpack_from(self._came, position + _SIZE.size + self._error_at)
            position += _SIZE.size + size
            due, frame = self._due.popleft()
            if error in _RETRIED:
                self._put_due(due, frame)
                continue
            if error:
                raise LoadFailed(f"a batch was refused with error {error}")
            self.answered += 1
            self.taken_s.append(now - due)
            if self._in_flight and not self.stopping:
                self.send(now)
        del self._came[:position]


class Reader(Client):
    """Reads a partition, from its start again where its end is `end`, and throws the records away.

    Args:
        end: the offset at which it begins again; -1 follows the partition.

    Attributes:
        bytes_read: of whole batches.
        batches: how many those were.
    """

    def __init__(self, bootstrap_servers: str, fetch: Fetch, batch: Batch, *, start: int = 0, end: int = -1) -> None:
        super().__init__(bootstrap_servers)
        self._fetch = fetch
        self._batch = batch
        self._offset = start
        self._end = end
        self._head = bytearray(fetch.head_bytes)
        self._head_read = 0
        self._left = -1
        self._waiting = False
        self.bytes_read = 0
        self.batches = 0

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        return self._waiting

    def begin(self) -> None:
        """Ask."""
        self._waiting = True
        self._put(self._fetch.frame(self._offset))

    def readable(self) -> None:
        """Take in what came of an answer, and ask again where it is whole."""
        try:
            if self._left < 0:
                with memoryview(self._head) as head:
                    count = self.socket.recv_into(head[self._head_read :])
                self._took(count)
                self._head_read += count
                if self._head_read < len(self._head):
                    return
                try:
                    self._records = self._left = self._fetch.records_bytes(self._head)
                except ValueError as problem:
                    raise LoadFailed(f"at offset {self._offset} of {self._end}: {problem}") from problem
                self._head_read = 0
            while self._left:
                count = self.socket.recv_into(_body, min(self._left, len(_body)), _DISCARD)
                self._took(count)
                self._left -= count
        except BlockingIOError:
            return
        self._left = -1
        whole = self._records // len(self._batch.data)
        self.batches += whole
        self.bytes_read += whole * len(self._batch.data)
        self._offset += whole * self._batch.records
        if self._offset == self._end:
            self._offset = 0
        self._waiting = False
        if not self.stopping:
            self.begin()

    @staticmethod
    def _took(count: int) -> None:
        if not count:
            raise LoadFailed("the broker closed the connection of a reader")


def drive(clients: Sequence[Client], seconds: float, *, paced: Sequence[Producer] = (), per_s: float = 0.0) -> float:
    """Let clients run for so long, and then until what they asked is answered; how long the first part took.

    Args:
        paced: those of them that in turn send `per_s` frames a second, at their moments, whatever becomes of the ones before.

    Raises:
        LoadFailed: the broker closed a connection, refused something, or did not answer in a minute.
    """
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.begin()
            _watch(selector, client)
        begun = time.perf_counter()
        sent = 0
        while (now := time.perf_counter()) - begun < seconds:
            while paced and begun + sent / per_s <= now:
                producer = paced[sent % len(paced)]
                producer.send(begun + sent / per_s)
                _watch(selector, producer)
                sent += 1
            wait = min(seconds - (now - begun), begun + sent / per_s - now if per_s else seconds)
            _turn(selector, max(wait, 0.0))
        taken = time.perf_counter() - begun
        for client in clients:
            client.stopping = True
        while any(client.busy or client.blocked for client in clients):
            _turn(selector, 1.0)
            if time.perf_counter() - begun > seconds + _WAIT_S:
                raise LoadFailed(f"no answer in {_WAIT_S:.0f} s")
    return taken


def _turn(selector: selectors.BaseSelector, wait_s: float) -> None:
    for key, events in selector.select(wait_s):
        client: Client = key.data
        if events & selectors.EVENT_WRITE:
            client.writable()
        if events & selectors.EVENT_READ:
            client.readable()
        _watch(selector, client)


def _watch(selector: selectors.BaseSelector, client: Client) -> None:
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.blocked else 0)
    if selector.get_key(client.socket).events != events:
        selector.modify(client.socket, events, client)


def close(clients: Sequence[Client]) -> None:
    """End the connections."""
    for client in clients:
        client.socket.close()
