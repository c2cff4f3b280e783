"""Members of a consumer group, each a process that can be killed, and what they have read.

Here: the processes and waiting on what they print.
Not here: what they run (`clients`).
"""

import contextlib
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tests.interop.clients import Client, Seen
from tests.support.patience import patient
from tests.support.programs import spawn


class Member:
    """One process and the records it printed."""

    def __init__(self, client: Client, command: list[str], progress: "queue.SimpleQueue[Member]") -> None:
        self._client = client
        self._progress = progress
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self.records: list[Seen] = []
        self._process = spawn(command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=client.environment())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = self._client.seen(line) if line.endswith("\n") else None  # a killed process may leave half a line
            if record is not None:
                self.records.append(record)
                self._progress.put(self)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """What it complained of."""
        self._errors.seek(0)
        return self._errors.read()[-2000:]

    def kill(self) -> None:
        """SIGKILL, and read what was printed before it."""
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def close(self) -> None:
        """Kill and release."""
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class Group:
    """The members of one group."""

    def __init__(self, members: Sequence[tuple[Client, list[str]]]) -> None:
        self._progress: queue.SimpleQueue[Member] = queue.SimpleQueue()
        self.members = [Member(client, command, self._progress) for client, command in members]

    def keys(self) -> set[str]:
        """The keys of all that any member has read."""
        return {record.key for member in self.members for record in list(member.records)}

    def read_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until what was read is enough.

        Raises:
            AssertionError: it was not, in time.
        """
        deadline = time.monotonic() + patient(seconds)
        while not done():
            with contextlib.suppress(queue.Empty):
                self._progress.get(timeout=max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline and not done():
                states = [
                    f"{len(member.records)} records, running: {member.is_running}\n{member.errors}"
                    for member in self.members
                ]
                raise AssertionError("the group did not read enough: " + "\n".join(states))


@contextlib.contextmanager
def group_of(members: Sequence[tuple[Client, list[str]]]) -> Iterator[Group]:
    """A group of these clients and command lines, whose processes are gone at the end."""
    group = Group(members)
    try:
        yield group
    finally:
        for member in group.members:
            member.close()
