"""`busway up` in a process of its own, and the command as users call it."""

import contextlib
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.patience import patient
from tests.support.programs import spawn

from busway.cli import main

SECONDS = patient(30.0)
CLIENTS = frozenset({"topics", "groups", "schema", "produce", "consume", "version", "dlq", "status", "features", "top"})
"""Commands that talk to servers only."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Up:
    """`busway up` on free ports."""

    def __init__(self, data: Path, *arguments: str, command: str = "up") -> None:
        self.process = start(
            command,
            "--data",
            str(data),
            *(["--port", "0", "--registry-port", "0"] if command == "up" else []),
            "--json",
            *arguments,
        )
        assert self.process.stdout is not None
        try:
            line = self.process.stdout.readline()
        except BaseException:  # it took too long
            _end(self.process)
            raise
        if not line:
            raise AssertionError(f"busway {command} did not start: {self.process.communicate()[1]}")
        self.started = json.loads(line)
        self.bootstrap: str = self.started["bootstrap_servers"]
        self.registry: str = self.started.get("schema_registry", "")

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Done:
        """A command against these servers."""
        return run(*arguments, stdin=stdin, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        """Where a command finds these servers."""
        return {"BUSWAY_BOOTSTRAP_SERVERS": self.bootstrap, "BUSWAY_SCHEMA_REGISTRY": self.registry}

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=SECONDS)
        finally:
            _end(self.process)
        return self.process.returncode


_started: list[subprocess.Popen[str]] = []


def start(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A command that goes on until the test ends it, or has ended."""
    process: subprocess.Popen[str] = spawn(
        [sys.executable, "-m", "busway.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    _started.append(process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    """Kill it where it still runs, and let go of its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture(autouse=True)
def no_command_goes_on() -> Iterator[None]:
    """What a test started and did not see end, because it failed or took too long, is killed."""
    before = len(_started)
    yield
    while len(_started) > before:
        _end(_started.pop())


def run(*arguments: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Done:
    """A command to its end: in this process where it talks to servers only, which saves the start of an interpreter."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if arguments[0] in CLIENTS and not (given and arguments[0] == "produce"):  # which reads from the descriptor
        return _run_here(arguments, given or b"", env or {})
    done = subprocess.run(
        [sys.executable, "-m", "busway.cli", *arguments],
        input=given or b"",
        capture_output=True,
        timeout=SECONDS,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
        check=False,
    )
    finished = Done(
        code=done.returncode, out=done.stdout.decode(errors="replace"), err=done.stderr.decode(errors="replace")
    )
    assert "Traceback" not in finished.err, finished.err
    return finished


def _run_here(arguments: tuple[str, ...], stdin: bytes, env: dict[str, str]) -> Done:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.dict(os.environ, env),
        mock.patch.object(sys, "argv", ["busway", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Done(code=code, out=out.getvalue(), err=err.getvalue())


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all tests of a module; each uses topics and subjects of its own."""
    server = Up(tmp_path_factory.mktemp("up"))
    try:
        yield server
    finally:
        server.stop()
