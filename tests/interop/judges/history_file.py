"""The history of a scenario, as many report it at once.

Here: the file, and programs whose output is part of it.
Not here: what is done with them (`scenario`).
"""

import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.judging.lines import line
from tests.support.patience import patient
from tests.support.programs import end, spawn

END_SECONDS = 40.0
PATIENCE_SECONDS = patient(60.0)


class HistoryFile:
    """A history in the making."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("a")
        self._news = threading.Condition()

    def add(self, text: str) -> None:
        """A whole line."""
        with self._news:
            self._out.write(text)

    def wake(self) -> None:
        """Something was said, or a program has ended: waiters look again."""
        with self._news:
            self._news.notify_all()

    def until(self, done: Callable[[], bool], said: Callable[[], str]) -> None:
        """Return when it is so; looks after every line that a program prints.

        Raises:
            AssertionError: it takes too long; with what was `said`.
        """
        with self._news:
            assert self._news.wait_for(done, PATIENCE_SECONDS), said()

    def record(self, f: str, process: str, **fields: Any) -> None:
        """Something that is over at this moment."""
        self.add(line(f, process, **fields))

    def close(self) -> None:
        """All of it is in the file."""
        with self._news:
            self._out.close()


class HistoryProgram:
    """A program that tells what it does; what is in the pipe when it is killed counts.

    Args:
        translate: what a line of its output means; None where it means nothing.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        history: HistoryFile,
        environment: Mapping[str, str] | None = None,
        translate: Callable[[str], str | None] = lambda text: text,
    ) -> None:
        self.name = name
        self._history = history
        self._translate = translate
        self._said = ""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = spawn(command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.endswith("\n") and (translated := self._translate(text)) is not None:
                self._history.add(translated)
            self._history.wake()
        self._process.wait()
        self._history.wake()

    @property
    def code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    @property
    def errors(self) -> str:
        """What it complained of."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = self._errors.read()[-3000:]
        return self._said

    def kill(self) -> None:
        """SIGKILL; nothing where it is gone."""
        self._process.kill()
        self._gone()

    def leave(self) -> int:
        """SIGTERM; what it ended with."""
        end(self._process, signal.SIGTERM, within_s=END_SECONDS)
        return self._gone()

    def _gone(self) -> int:
        code = self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert self.errors is not None  # it is read before the file is closed
        self._errors.close()
        return code
