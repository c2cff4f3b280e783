"""One end of a simulated connection.

Here: an asyncio transport like TCP: flow control in both directions, bytes split anywhere, half-closed ends, resets.
Not here: listeners and faults (`sim_network`).

As in an operating system, bytes that a process has handed over are in flight whatever happens to it, and arrived bytes
wait for a frozen process.
"""

import asyncio
import errno
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from busway_bus.testing.sim_loop import SimLoop
from busway_bus.testing.sim_process import PROCESS, Host, Process
from busway_bus.testing.sim_socket import SimSocket
from busway_bus.testing.sim_tasks import SimHandle

_HIGH: Final = 64 * 1024
_READ_MAX: Final = 256 * 1024
"""Limit of one read, as in asyncio."""
_ORDER_S: Final = 1e-9
"""Minimum between two packets of one direction, to keep their order."""
_KEEPIDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 4))
"""Named by Linux and Windows, or by macOS."""
_KEEPALIVE: Final[dict[int, int]] = {_KEEPIDLE: 7200, socket.TCP_KEEPINTVL: 75, socket.TCP_KEEPCNT: 9}
"""Linux's defaults: two in s, and the number of probes (tcp(7))."""


@dataclass(slots=True, kw_only=True)
class NetworkConditions:
    """The state of the network.

    Attributes:
        delay_s: shortest and longest delay of a packet.
        cut_chance: probability that one write arrives in two parts.
        window_bytes: in flight and unread per connection before its sender waits.
    """

    delay_s: tuple[float, float] = (0.00005, 0.001)
    cut_chance: float = 0.1
    window_bytes: tuple[int, ...] = (64 * 1024, 256 * 1024)


class Wire(Protocol):
    """The network between a connection's ends."""

    loop: SimLoop
    chance: Random
    conditions: NetworkConditions

    def delay(self) -> float:
        """Draw the delay of one packet, in s."""

    def delay_between(self, sender: Host, receiver: Host) -> float:
        """Draw the delay of one packet on a link, in s."""

    def passes(self, sender: Host, receiver: Host) -> bool:
        """Whether packets pass from one host to another."""

    def forget(self, end: "SimTransport") -> None:
        """Remove a closed end."""


class SimTransport(asyncio.Transport):
    """One end; methods of asyncio's as there.

    Attributes:
        lost: closed for its process.
        vanished: its host lost power, so that it does not respond.
    """

    def __init__(
        self,
        network: Wire,
        process: Process,
        *,
        name: str,
        ours: tuple[str, int],
        theirs: tuple[str, int],
        window: int,
        context: Context,
    ) -> None:
        super().__init__({"sockname": ours, "peername": theirs})
        self._network = network
        self._loop = network.loop
        self.process = process
        self.name = name
        self.peer: SimTransport
        context.run(PROCESS.set, process)
        self._context = context
        self._protocol: Any = None
        self._buffered = False
        # Not handed over yet
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high, self._low = _HIGH, _HIGH // 4
        self._writing_paused = False
        self._ending = False
        self._ended = False
        self._closing = False
        self.lost = False
        # In flight
        self._window = window
        self._last_arrival = 0.0
        self._held: list[bytes | None] = []
        self._closed = False
        self.vanished = False
        self._missed = False
        self._options: dict[tuple[int, int], int] = {}
        # Arrived
        self._inbox: deque[bytes] = deque()
        self._eof = False
        self._eof_passed = False
        self._reset: OSError | None = None
        self._reading = True
        self._read_queued = False
        self._read_handle = SimHandle(self._read, (), context)
        self._pump_handle = SimHandle(self._pump, (), context)
        self._pump_queued = False

    # Process

    def soon(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)

    def begin(self, protocol: Any) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._look()

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return SimSocket(super().get_extra_info("sockname"), super().get_extra_info("peername"), self._options)
        return super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._look()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._ending:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing:
            return
        data = b"".join(list_of_data)
        if not data:
            return
        if self._reset is not None:
            self._break_off(self._reset)
            return
        if not self._unsent and len(data) <= self._window:
            self._window -= len(data)
            self._send(data)
            return
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._pump()

    def write_eof(self) -> None:
        if not self._ending and not self._closing:
            self._ending = True
            self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self.soon(self._lose, None)

    def abort(self) -> None:
        self._break_off(None)

    def _break_off(self, problem: OSError | None) -> None:
        if self.lost:
            return
        self._unsent.clear()
        self._unsent_bytes = 0
        if not self._closing or problem is None:
            self._closing = True
            self.soon(self._lose, problem)

    def _lose(self, problem: OSError | None) -> None:
        if self.lost:
            return
        self.lost = True
        if self._protocol is not None:
            self._protocol.connection_lost(problem)
        self.kernel_closed(reset=bool(self._inbox))

    def _pump(self) -> None:
        self._pump_queued = False
        while self._unsent and self._window > 0:
            data = self._unsent.popleft()
            if len(data) > self._window:
                self._unsent.appendleft(data[self._window :])
                data = data[: self._window]
            self._unsent_bytes -= len(data)
            self._window -= len(data)
            self._send(data)
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif self._writing_paused and self._unsent_bytes <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self._unsent:
            if self._closing and not self.lost:
                self.soon(self._lose, None)
            elif self._ending and not self._ended:
                self._ended = True
                self._ship(None)

    def _read(self) -> None:
        self._read_queued = False
        if self._closing or not self._reading:
            return
        if self._inbox:
            self._read_some()
        elif self._reset is not None:
            self._break_off(self._reset)
        elif self._eof and not self._eof_passed:
            self._eof_passed = True
            if not self._protocol.eof_received():
                self.close()
        self._look()

    def _read_some(self) -> None:
        inbox = self._inbox
        data = inbox.popleft()
        while inbox and len(data) < _READ_MAX:
            data += inbox.popleft()
        if self._buffered:
            room = self._protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            if count < len(data):
                inbox.appendleft(data[count:])
            self._make_room(count)
            self._protocol.buffer_updated(count)
        else:
            self._make_room(len(data))
            self._protocol.data_received(data)

    def _make_room(self, count: int) -> None:
        peer = self.peer
        peer._window += count
        if peer._unsent and not peer._pump_queued and not peer.process.dead:
            peer._pump_queued = True
            self._loop.later(self._network.delay(), peer._resume)

    def _resume(self) -> None:
        self._loop.queue(self.process, self._pump_handle)

    def _look(self) -> None:
        if (
            (self._inbox or self._reset is not None or (self._eof and not self._eof_passed))
            and not self._read_queued
            and self._reading
            and not self._closing
            and self._protocol is not None
        ):
            self._read_queued = True
            self._loop.queue(self.process, self._read_handle)

    # Operating system

    def _send(self, data: bytes) -> None:
        chance = self._network.chance
        if len(data) > 1 and chance.random() < self._network.conditions.cut_chance:
            cut = chance.randrange(1, len(data))
            self._ship(data[:cut])
            data = data[cut:]
        self._ship(data)

    def _ship(self, data: bytes | None) -> None:
        """Send a packet; None is the end of the stream."""
        peer = self.peer
        delay = self._network.delay_between(self.process.host, peer.process.host)
        self._last_arrival = at = max(self._last_arrival + _ORDER_S, self._loop.time() + delay)
        self._loop.at(at, partial(peer._arrive, data))

    def _arrive(self, data: bytes | None) -> None:
        if self._held or not self._network.passes(self.peer.process.host, self.process.host):
            self._held.append(data)
            return
        self._take(data)

    def _take(self, data: bytes | None) -> None:
        if self._reset is not None:
            return
        if self.vanished:
            self._missed = True
            if self.process.host.up:
                self.reset_after_power_cut()
            return
        if self._closed:
            if data is not None:
                self._reset_peer()
            return
        if data is None:
            self._loop.tell(self.process, f"end of {self.name}")
            self._eof = True
        else:
            self._loop.trace.add(self._loop.time(), self.process.name, (len(data), zlib.crc32(data), self.name))
            self._inbox.append(data)
        self._look()

    def arrivals_pass(self) -> None:
        if self._held and self._network.passes(self.peer.process.host, self.process.host):
            held, self._held = self._held, []
            for data in held:
                self._take(data)

    def kernel_closed(self, *, reset: bool) -> None:
        """Close the socket. Bytes in flight arrive before the end or the reset."""
        if self._closed:
            return
        self._closed = self.lost = self._closing = True
        self._network.forget(self)
        if reset:
            self._reset_peer()
        elif not self._ended:
            self._ended = True
            self._ship(None)

    def _reset_peer(self) -> None:
        peer = self.peer
        at = max(self._last_arrival + _ORDER_S, self._loop.time() + self._network.delay())
        self._last_arrival = at
        self._loop.at(at, lambda: peer.drop(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")))

    def drop(self, problem: OSError) -> None:
        """Reset the connection; bytes in flight are lost."""
        if self._reset is None and not self._closed:
            self._loop.tell(self.process, f"reset of {self.name}")
            self._reset = problem
            self._held.clear()
            self._look()

    def vanish(self) -> None:
        self.vanished = self.lost = self._closing = True

    def reset_after_power_cut(self) -> None:
        """Reset the connection after a power cut, if the peer has sent."""
        if self._missed and not self._closed:
            self._closed = True
            self._network.forget(self)
            self._reset_peer()

    def keepalive_s(self) -> tuple[float, float] | None:
        """Return the silence in s before the first keepalive probe and the timeout.

        None without keepalive.
        """
        if not self._options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
            return None
        idle_s, interval_s, count = (
            self._options.get((socket.IPPROTO_TCP, option), usual) for option, usual in _KEEPALIVE.items()
        )
        return idle_s, idle_s + interval_s * count

    def asked(self) -> None:
        self._missed = True
        if self.process.host.up:
            self.reset_after_power_cut()

    def never_answers(self) -> None:
        """Time the peer out after its last keepalive probe."""
        if not self._closed:
            self._closed = True
            self._network.forget(self)
            self.peer.drop(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
