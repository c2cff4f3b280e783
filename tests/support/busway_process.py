"""Busway's broker in a process of its own, which may be killed and started again on the same data.

Here: starting and stopping it.
Not here: which broker a test wants (`tests.interop.broker`).
"""

import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from busway_bus.formatting import format_node
from busway_bus.kernel.config import BrokerConfig
from tests.support.patience import patient
from tests.support.programs import held_ports, spawn

START_SECONDS = patient(20.0)


class BuswayProcess:
    """`python -m busway_bus` with its own temporary data directory.

    Args:
        prefix: put before its command line.
        controller: whether it opens a listener of the controller too, as `ApacheKafka` does.
        cluster_id: of the cluster that its directory is formatted for; without it, it makes one at its start.

    Attributes:
        settings: may be changed before the start.
    """

    def __init__(
        self,
        settings: dict[str, str],
        prefix: Sequence[str] = (),
        *,
        controller: bool = False,
        cluster_id: str | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="busway-broker-"))
        self.settings = settings
        self._cluster_id = cluster_id
        self._prefix = prefix
        self._process: subprocess.Popen[str] | None = None
        self._log = self._folder / "broker.log"
        self._port, *controllers = held_ports(2 if controller else 1)
        self.bootstrap_servers = ""
        self.bootstrap_controllers = "".join(f"127.0.0.1:{port}" for port in controllers)

    @property
    def data_dir(self) -> Path:
        """Where its logs are."""
        return self._folder / "data"

    @property
    def address(self) -> str:
        """Where it listens, also while it does not run."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether it has started, and neither ended nor was killed."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it says where it serves."""
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self._port}", "log.dirs": str(self.data_dir)}
        if self.bootstrap_controllers:
            settings["listeners"] += f",CONTROLLER://{self.bootstrap_controllers}"
            settings["controller.listener.names"] = "CONTROLLER"
            settings["controller.quorum.voters"] = f"1@{self.bootstrap_controllers}"
        settings |= self.settings
        if self._cluster_id is not None:
            format_node(BrokerConfig.from_properties(settings), self._cluster_id)
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
        """SIGKILL; `start` goes on with the same data at the same address."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def shut_down(self) -> None:
        """End the process; it must end by itself, with code 0, and must have logged no traceback. `start` goes on with the same data."""
        code, log = self._ended(), self._log.read_text()
        assert code == 0, f"the broker ended with {code}:\n{log[-3000:]}"
        assert "Traceback" not in log, f"the broker logged a failure of its own:\n{log[-3000:]}"

    def stop(self) -> None:
        """Stop as `shut_down` does, and remove the data."""
        try:
            self.shut_down()
        finally:
            shutil.rmtree(self._folder)

    def _ended(self) -> int:
        """Send SIGTERM, SIGKILL if that has no effect; the exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(patient(30))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code
