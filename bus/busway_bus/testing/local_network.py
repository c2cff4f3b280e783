"""The network between the nodes of a test, and to their clients, that can be cut.

Here: which directions are cut; streams that keep bytes back meanwhile.
Not here: the nodes (`local_nodes`), the simulated network (`sim_network`).

A cut loses no byte and closes no connection, as TCP does: what was sent before it, or is sent meanwhile, arrives once it
is healed, if its connection is still open. New connections are opened by the kernel and stay without an answer.
"""

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from busway_bus.server.acceptor import StreamsOf
from busway_bus.server.socket_stream import AVAILABLE, SocketStream
from busway_bus.server.stream import Piece, Shared, Stream

CLIENTS: Final = 0
"""All clients of the nodes, as an end of a cut."""
Direction: TypeAlias = tuple[int, int]
"""Sender and receiver: ids of nodes, or CLIENTS."""


class LocalNetwork:
    """Directions between nodes and clients that are open or cut; all are open at first."""

    def __init__(self) -> None:
        self._cuts: Counter[Direction] = Counter()
        self._streams: dict[_Stream, None] = {}

    def is_cut(self, direction: Direction) -> bool:
        return direction in self._cuts

    def cut(self, directions: Iterable[Direction]) -> None:
        """Keep back what is sent. A direction that was cut twice is open after two calls of `heal`.

        Raises:
            NotImplementedError: this platform has no `sendfile`, and other streams.
        """
        if not AVAILABLE:
            raise NotImplementedError(
                "the network of nodes in a test cannot be cut on this platform; use Linux or macOS"
            )
        self._cuts.update(directions)

    def heal(self, directions: Iterable[Direction] | None = None) -> None:
        """Deliver what was kept back; None heals all directions."""
        if directions is None:
            self._cuts.clear()
        else:
            self._cuts.subtract(each for each in directions if self.is_cut(each))
            self._cuts = +self._cuts  # without those that are open again
        for stream in tuple(self._streams):
            stream.go_on()

    def streams(self, node_id: int, source: Callable[[str], int]) -> StreamsOf:
        """Return what makes the streams of a node.

        Args:
            source: the node whose requests come by a listener, or CLIENTS.
        """
        return lambda listener: partial(self._make, node_id, source(listener))

    def _make(self, node_id: int, source: int, connected: socket.socket, host: str, shared: Shared) -> SocketStream:
        stream = _Stream(connected, host, shared)
        stream.is_received = lambda: not self.is_cut((source, node_id))
        stream.is_sent = lambda: not self.is_cut((node_id, source))
        stream.ended = lambda: self._streams.pop(stream, None)
        self._streams[stream] = None
        return stream


class _Stream(SocketStream):
    """A stream of one node's server; it also learns late that its client has closed.

    Attributes:
        is_received, is_sent: whether the directions are open.
        ended: called at the end.
    """

    is_received: Callable[[], bool]
    is_sent: Callable[[], bool]
    ended: Callable[[], object]

    def go_on(self) -> None:
        """Read and send where the directions are open."""
        if self._lost:
            return
        if self._reading and not self._waits_for_turn:
            self._watch_reads()
        if self._blocked:
            self._watch_writes(on=True)

    def _readable(self) -> None:
        if self.is_received():
            super()._readable()
        else:
            self._watch_no_reads()

    def _read_on(self) -> None:
        if self.is_received():
            super()._read_on()
        else:
            self._waits_for_turn = False

    def _writable(self) -> None:
        if self.is_sent():
            super()._writable()
        else:
            self._watch_writes(on=False)

    def put(self, pieces: Sequence[Piece]) -> None:
        if self.is_sent():
            super().put(pieces)
        else:
            Stream.put(self, pieces)  # into the queue, from which nothing is sent

    def _send(self) -> bool:
        if self.is_sent():
            return super()._send()
        self._blocked = True
        return False

    def _forget(self) -> None:
        super()._forget()
        self.ended()
