"""A client that asks a server one small thing again and again while a test is hostile to it.

Here: how long each of its answers kept the server's event loop busy, and the most memory that the server ever held. The
measure is the CPU time of the loop's own thread, read from the kernel before the question and after the answer: what a
busy machine does to the clock on the wall does not count, and what the loop did for another client first does.
Not here: the hostile deeds.

The canary is a process of its own: a thread beside the deeds would get the interpreter's lock now and then when its answer had long come,
and what the loop did meanwhile would count. For the same reason the time in which the canary was ready to run and no core was free for it
is taken off: it had not asked yet, or was answered already.
"""

import http.client
import multiprocessing
import os
import socket
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.patience import patient

WORST_MS: Final = 100.0
"""What one request of anybody may cost another client, in milliseconds of the loop's CPU time."""
MEMORY_MIB: Final = 512.0
"""What a server may hold, whatever is asked of it."""
_ANSWER_WITHIN_S: Final = patient(60.0)
_FIRST_ANSWERS: Final = 3
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


def _scheduled_ms(pid: int) -> tuple[float, float]:
    """How long the main thread of a process, which runs its event loop, has run, and was ready to run and no core was free, in milliseconds."""
    ran_ns, waited_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran_ns) / 1e6, int(waited_ns) / 1e6


def peak_memory_mib(pid: int) -> float:
    """The most memory that a process ever had resident, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class KafkaQuestion:
    """Asks a broker for its API versions on a connection that stays open, from the first question on."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None

    def __call__(self) -> None:
        """One question and its answer."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=_ANSWER_WITHIN_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(struct.pack(">ihhih6s", 16, 18, 0, 1, 6, b"canary"))
        (size,) = struct.unpack(">i", _exactly(self._socket, 4))
        _exactly(self._socket, size)

    def close(self) -> None:
        """Hang up, for a client without a canary."""
        if self._socket is not None:
            self._socket.close()


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the server closed the canary's connection"
        data += part
    return data


class HttpQuestion:
    """Asks an HTTP server for one page on a connection that stays open, from the first question on."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._address = host, port
        self._path = path
        self._connection: http.client.HTTPConnection | None = None

    def __call__(self) -> None:
        """One question and its answer, which has to be a 200."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_WITHIN_S)
        self._connection.request("GET", self._path)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status


class Canary:
    """Asks from a process of its own for as long as the `with` block runs, and at least once after it began and once before it ends.

    Args:
        pid: the server's process.
        ask: one question and its answer, called in the canary's process; raising ends the canary, and `check` tells of it.

    Attributes:
        costs_ms: for each answer, what the loop's thread computed between question and answer; known after the block.
    """

    def __init__(self, pid: int, ask: Callable[[], None]) -> None:
        self._pid = pid
        self._over = _PROCESSES.Event()
        self._told, tells = _PROCESSES.Pipe(duplex=False)
        self._process = _PROCESSES.Process(target=_sing, args=(pid, ask, self._over, tells), daemon=True)
        self._tells = tells
        self._problem: str | None = None
        self.costs_ms: list[float] = []

    @property
    def worst_ms(self) -> float:
        """The dearest answer."""
        return max(self.costs_ms)

    def check(self) -> None:
        """Assert that every question was answered, none behind more than `WORST_MS`, and that memory stayed below `MEMORY_MIB`."""
        assert self._problem is None, f"the canary died: {self._problem}"
        assert self.worst_ms <= WORST_MS, f"an answer waited for {self.worst_ms:.0f} ms of the loop's CPU time"
        peak = peak_memory_mib(self._pid)
        assert peak <= MEMORY_MIB, f"the server held {peak:.0f} MiB"

    def __enter__(self) -> "Canary":
        self._process.start()
        self._tells.close()  # the process has it
        assert self._told.poll(_ANSWER_WITHIN_S), "the canary got no answer before anything was done to the server"
        self._told.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        try:
            if self._told.poll(_ANSWER_WITHIN_S):
                self.costs_ms, self._problem = self._told.recv()
            else:
                self._problem = "its last question is not answered"
        except EOFError:
            self._problem = "its process ended"
        self._process.kill()
        self._process.join()


def _sing(pid: int, ask: Callable[[], None], over: Event, tells: Connection) -> None:
    """The canary's process: tells once that it sings, and at the end what it found."""
    costs_ms: list[float] = []
    problem = None
    own = os.getpid()
    try:
        while not over.is_set() or len(costs_ms) < _FIRST_ANSWERS:
            (_, waited_before), (ran_before, _) = _scheduled_ms(own), _scheduled_ms(pid)
            ask()
            (ran_after, _), (_, waited_after) = _scheduled_ms(pid), _scheduled_ms(own)
            costs_ms.append(max((ran_after - ran_before) - (waited_after - waited_before), 0.0))
            if len(costs_ms) == _FIRST_ANSWERS:
                tells.send(None)
    except BaseException as raised:
        problem = repr(raised)
        if len(costs_ms) < _FIRST_ANSWERS:
            tells.send(None)
    tells.send((costs_ms, problem))
