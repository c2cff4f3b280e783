"""The broker under test: Busway in a process of its own, or, to check the tests, Apache Kafka.

What lives here: starting and stopping either, with one interface. What does not: anything about clients.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import ApacheKafka
from tests.support.programs import held_ports, spawn

CHOICE = "BUSWAY_INTEROP_BROKER"
START_SECONDS = 20.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


class Broker(Protocol):
    """What the tests know of a broker."""

    bootstrap_servers: str

    @property
    def data_dir(self) -> Path:
        """The folder with one folder for each partition."""

    def start(self) -> None:
        """Serve, or raise."""

    def kill(self) -> None:
        """SIGKILL; `start` goes on with the same data at the same address."""

    def stop(self) -> None:
        """End, and remove the data."""


class BuswayProcess:
    """`python -m busway_bus` with its own temporary data directory; `prefix` is put before its command line."""

    def __init__(self, settings: dict[str, str], prefix: Sequence[str] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="busway-interop-"))
        self._settings = settings
        self._prefix = prefix
        self._process: subprocess.Popen[str] | None = None
        self._log = self._folder / "broker.log"
        self._port = held_ports(1)[0]
        self.bootstrap_servers = ""

    @property
    def data_dir(self) -> Path:
        """Where its logs are."""
        return self._folder / "data"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it says where it serves."""
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": str(self.data_dir),
            **self._settings,
        }
        file = self._folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self._log.open("a") as log:
            self._process = spawn(
                [*self._prefix, sys.executable, "-m", "busway_bus", str(file)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        first: queue.SimpleQueue[str] = queue.SimpleQueue()
        stdout = self._process.stdout
        threading.Thread(target=lambda: first.put(stdout.readline()), daemon=True).start()
        try:
            words = first.get(timeout=START_SECONDS).split()
        except queue.Empty:
            words = []
        assert words[:1] == ["serving"], f"the broker did not start:\n{self._log.read_text()[-3000:]}"
        self.bootstrap_servers = words[1]

    def kill(self) -> None:
        """As `Broker.kill`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> None:
        """End the process; it must end by itself, with code 0, and must have logged no traceback."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        log = self._log.read_text()
        shutil.rmtree(self._folder)
        assert code == 0, f"the broker ended with {code}:\n{log[-3000:]}"
        assert "Traceback" not in log, f"the broker logged a failure of its own:\n{log[-3000:]}"


def chosen_broker(settings: Mapping[str, str] | None = None) -> Broker:
    """The broker that the environment asks for; `settings` beside those of the suite."""
    chosen = {**SETTINGS, **(settings or {})}
    if os.environ.get(CHOICE, "busway") == "apache":
        return ApacheKafka(chosen)
    return BuswayProcess(chosen)
