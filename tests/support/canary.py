"""A client that asks a server one small thing again and again while a test is hostile to it.

What lives here: how long each of its answers kept the server's event loop busy, and the most memory that the server ever held. The
measure is the CPU time of the loop's own thread, read from the kernel before the question and after the answer: what a busy machine
does to the clock on the wall does not count, and what the loop did for somebody else first does. What does not: the hostile deeds.
"""

import http.client
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

WORST_MS: Final = 100.0
"""What one request of anybody may cost another client, in milliseconds of the loop's CPU time."""
MEMORY_MIB: Final = 512.0
"""What a server may hold, whatever is asked of it."""
_ANSWER_WITHIN_S: Final = 60.0
_FIRST_ANSWERS: Final = 3


def loop_cpu_ms(pid: int) -> float:
    """CPU time that the main thread of a process, which runs its event loop, has used, in milliseconds."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def peak_memory_mib(pid: int) -> float:
    """The most memory that a process ever had resident, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class KafkaQuestion:
    """Asks a broker for its API versions on a connection that stays open."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self) -> None:
        """One question and its answer."""
        self._socket.sendall(struct.pack(">ihhih6s", 16, 18, 0, 1, 6, b"canary"))
        (size,) = struct.unpack(">i", self._exactly(4))
        self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the server closed the canary's connection"
            data += part
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class HttpQuestion:
    """Asks an HTTP server for one page on a connection that stays open."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._path = path
        self._connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_WITHIN_S)

    def __call__(self) -> None:
        """One question and its answer, which has to be a 200."""
        self._connection.request("GET", self._path)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Canary:
    """Asks from a thread of its own for as long as the `with` block runs, and at least once after it began and once before it ends.

    Args:
        pid: the server's process.
        ask: one question and its answer; raising ends the canary, and `check` raises it again.

    Attributes:
        costs_ms: for each answer, what the loop's thread computed between question and answer.
    """

    def __init__(self, pid: int, ask: Callable[[], None]) -> None:
        self._pid = pid
        self._ask = ask
        self._over = threading.Event()
        self._singing = threading.Event()
        self._thread = threading.Thread(target=self._sing, daemon=True)
        self._problem: BaseException | None = None
        self.costs_ms: list[float] = []

    @property
    def worst_ms(self) -> float:
        """The dearest answer."""
        return max(self.costs_ms)

    def check(self) -> None:
        """Assert that every question was answered, none behind more than `WORST_MS`, and that memory stayed below `MEMORY_MIB`."""
        if self._problem is not None:
            raise AssertionError(f"the canary died: {self._problem!r}") from self._problem
        assert self.worst_ms <= WORST_MS, f"an answer waited for {self.worst_ms:.0f} ms of the loop's CPU time"
        peak = peak_memory_mib(self._pid)
        assert peak <= MEMORY_MIB, f"the server held {peak:.0f} MiB"

    def _sing(self) -> None:
        try:
            while not self._over.is_set() or len(self.costs_ms) < _FIRST_ANSWERS:
                before = loop_cpu_ms(self._pid)
                self._ask()
                self.costs_ms.append(loop_cpu_ms(self._pid) - before)
                if len(self.costs_ms) >= _FIRST_ANSWERS:
                    self._singing.set()
        except BaseException as problem:  # it is told by check
            self._problem = problem
            self._singing.set()

    def __enter__(self) -> "Canary":
        self._thread.start()
        assert self._singing.wait(_ANSWER_WITHIN_S), "the canary got no answer before anything was done to the server"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_ANSWER_WITHIN_S)
        if self._thread.is_alive():
            self._problem = self._problem or TimeoutError("the canary's last question is not answered")
