"""How long a connection may take for a request: judged by what comes of it, and only while the broker reads."""

import asyncio
import contextlib
import itertools
import socket
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from busway.net.machine import OS
from busway_bus.kernel.counters import RequestCounters
from busway_bus.kernel.limits import (
    PARTIAL_REQUEST_CONTENDED_MS,
    PARTIAL_REQUEST_TIMEOUT_MS,
    REQUEST_BYTES_FREE,
    REQUEST_BYTES_LARGE,
    REQUEST_BYTES_PER_S_MIN,
)
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.server.connection import Connection
from busway_bus.server.frame_reader import scratch_buffer
from busway_bus.server.request_memory import RequestMemory
from busway_bus.server.socket_stream import SocketStream
from busway_bus.server.stream import Shared, Stream
from busway_bus.server.transport_stream import TransportStream
from busway_protocol.apis import ApiKey

MIB = 1024 * 1024
PATIENCE_S = PARTIAL_REQUEST_TIMEOUT_MS / 1000


class Socket(asyncio.Transport):
    """Takes what is written, and knows whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.correlation_ids: list[int] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Without end."""

    def get_write_buffer_size(self) -> int:
        """All is sent."""
        return 0

    def write(self, data: Any) -> None:
        """Gone."""

    def writelines(self, list_of_data: Any) -> None:
        """Gone, but for what each answer begins with."""
        data = b"".join(list_of_data)
        while data:
            size, correlation_id = struct.unpack_from(">ii", data)
            self.correlation_ids.append(correlation_id)
            data = data[4 + size :]

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """Not now."""
        self.reading = False

    def resume_reading(self) -> None:
        """Now."""
        self.reading = True


class Clock:
    """The event loop's, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def connection(stream: Stream, memory: RequestMemory, turns: FairScheduler) -> Connection:
    """What is at the broker's end of a stream."""
    return Connection(
        cast("Any", SimpleNamespace(scheduler=turns, requests=RequestCounters())),
        stream,
        advertised=Endpoint(name="X", host="h", port=1),
        max_request_bytes=100 * MIB,
        scratch=scratch_buffer(),
        memory=memory,
        on_close=lambda _: None,
        warn_about_peer=lambda _, reason: None,
    )


class Peer:
    """A connection without a network, whose turn is never over unless `turns` says so."""

    def __init__(self, memory: RequestMemory, clock: Clock, turns: FairScheduler | None = None) -> None:
        self.clock = clock
        self.socket = Socket()
        self.stream = TransportStream(lambda _: None, Shared())
        self.connection = connection(self.stream, memory, turns or FairScheduler(replace(OS, monotonic_s=lambda: 0.0)))
        self.stream.connection_made(self.socket)

    def send(self, data: bytes) -> None:
        """The broker reads these bytes."""
        while data:
            assert self.socket.reading
            buffer = self.stream.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            del buffer
            self.stream.buffer_updated(count)
            data = data[count:]

    def overdue_after(self, seconds: float) -> bool:
        """Whether it is too slow when so much more time has passed."""
        self.clock.now += seconds
        return self.connection.overdue(self.clock.now)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time."""
    return Clock(monkeypatch)


def announce(size: int) -> bytes:
    """What a frame begins with."""
    return size.to_bytes(4, "big")


async def test_a_request_that_comes_on_may_take_long(clock: Clock) -> None:
    """50 MB over a slow line, half a minute between two pieces: never too late, in all 25 minutes."""
    peer = Peer(RequestMemory(100 * MIB), clock)
    peer.send(announce(50 * MIB))
    for _ in range(49):
        peer.send(bytes(MIB))
        assert not peer.overdue_after(PATIENCE_S / 2)


async def test_a_trickle_ends(clock: Clock) -> None:
    """A byte every second is progress, but not for ever."""
    peer = Peer(RequestMemory(100 * MIB), clock)
    peer.send(announce(50 * MIB))
    seconds = 0
    while not peer.overdue_after(1):
        peer.send(b"x")
        seconds += 1
    assert seconds <= PATIENCE_S + 1


async def test_a_flood_that_stops_is_not_waited_for_longer(clock: Clock) -> None:
    """What came fast before buys no time for silence."""
    peer = Peer(RequestMemory(100 * MIB), clock)
    peer.send(announce(50 * MIB) + bytes(20 * MIB))
    assert 20 * MIB / REQUEST_BYTES_PER_S_MIN > 2 * PATIENCE_S
    assert not peer.overdue_after(PATIENCE_S)
    assert peer.overdue_after(1)


async def test_a_stall_behind_a_whole_request_in_the_same_read_is_seen(clock: Clock) -> None:
    """The clock runs from the moment in which the second request began."""
    peer = Peer(RequestMemory(100 * MIB), clock)
    unknown_version = announce(8) + struct.pack(">hhi", ApiKey.API_VERSIONS, 99, 7)
    peer.send(unknown_version + announce(100) + b"half")
    assert not peer.overdue_after(PATIENCE_S - 1)
    assert peer.overdue_after(2)


async def test_requests_without_end_let_others_have_their_turn(clock: Clock) -> None:
    """A thousand requests in one read are answered in order, in as many turns of the loop as they need."""
    moments = itertools.count()
    turns = FairScheduler(replace(OS, monotonic_s=lambda: next(moments) * 0.001))
    peer = Peer(RequestMemory(100 * MIB), clock, turns)
    frames = [announce(8) + struct.pack(">hhi", ApiKey.API_VERSIONS, 99, number) for number in range(1_000)]
    peer.send(b"".join(frames))
    rounds = 0
    while len(peer.socket.correlation_ids) < 1_000:
        before = len(peer.socket.correlation_ids)
        await asyncio.sleep(0)
        assert len(peer.socket.correlation_ids) - before < 20
        rounds += 1
    assert rounds > 50
    assert peer.socket.correlation_ids == list(range(1_000))


async def test_many_who_send_at_once_are_read_from_in_many_rounds() -> None:
    """Each look at the clock takes a millisecond of the five that a round has for clients, and of the five after those in which they are
    only read from."""
    moments = itertools.count()
    turns = FairScheduler(replace(OS, monotonic_s=lambda: next(moments) * 0.001))
    shared, memory = Shared(), RequestMemory(100 * MIB)
    with contextlib.ExitStack() as sockets:
        streams = []
        for _ in range(50):
            near, far = socket.socketpair()
            near.setblocking(False)
            sockets.enter_context(far).sendall(announce(100) + b"half")
            streams.append(SocketStream(near, "client", shared))
            sockets.callback(streams[-1].abort)
        made = [connection(stream, memory, turns) for stream in streams]
        for stream in streams:
            stream.resume_reading()
        read = rounds = 0
        while read < len(made):
            await asyncio.sleep(0)
            before, read = read, sum(stream._partial_since is not None for stream in made)
            assert read - before < 15
            rounds += 1
        assert rounds > 5
    shared.pages.close()


async def test_who_does_not_take_its_answer_is_idle(clock: Clock) -> None:
    """Since it took something last; one that asks nothing is idle since it asked, one that is being worked for never."""
    peer = Peer(RequestMemory(100 * MIB), clock)
    clock.now += 5
    peer.stream.put([announce(4) + b"ping"])
    assert peer.connection.idle_since(clock.now) == clock.now - 5
    peer.stream.pause_writing()
    clock.now += 7
    assert peer.connection.idle_since(clock.now) == clock.now - 7
    peer.stream.resume_writing()
    peer.connection._requests.append(memoryview(b"a request"))
    assert peer.connection.idle_since(clock.now) is None


async def test_waiting_for_memory_is_not_the_peers_fault(clock: Clock) -> None:
    """While the broker does not read the time stands still; who holds the memory meanwhile and sends nothing is cut off soon."""
    memory = RequestMemory(3 * MIB)
    holder, waiting = Peer(memory, clock), Peer(memory, clock)
    size = REQUEST_BYTES_LARGE + 1
    holder.send(announce(2 * size) + bytes(size))
    waiting.send(announce(size) + bytes(REQUEST_BYTES_FREE))
    assert not waiting.socket.reading
    assert holder.socket.reading
    assert not waiting.overdue_after(PARTIAL_REQUEST_CONTENDED_MS / 1000 + 1)
    assert holder.connection.overdue(clock.now)
