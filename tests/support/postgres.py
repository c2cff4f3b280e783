"""PostgreSQL itself, from Debian's packages: a server of its own for a test, on a free port of the loopback address.

Here: one server, started, killed and started again.
Not here: installing it (`tools.install_foreign`).
"""

import contextlib
import os
import pwd
import signal
import subprocess
import time

from tools.install_foreign import postgres_bin

from tests.support.patience import patient
from tests.support.programs import Program, held_ports, spawn

START_SECONDS = patient(60.0)
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "shared_buffers": "'64MB'",
    "fsync": "on",
    "synchronous_commit": "on",
}


class Postgres(Program):
    """One server with its own temporary data directory and the superuser `postgres`, without a password.

    Attributes:
        port: of the loopback address; the same after a restart.
        dsn: `postgresql://postgres@127.0.0.1:PORT/postgres`, for psycopg.
        url: the same for SQLAlchemy with psycopg 3, sync and async: `postgresql+psycopg://…`.
    """

    def __init__(self) -> None:
        super().__init__("postgres")
        self._bin = postgres_bin()
        self._data = self._folder / "data"
        (self.port,) = held_ports(1)
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def _user(self) -> str | None:
        """The server refuses to run as root; then it runs as `postgres`, whom Debian's package makes."""
        return "postgres" if os.geteuid() == 0 else None

    def start(self) -> None:
        """Make the data directory where there is none, start the server, wait until it answers."""
        if self._user() is not None:
            account = pwd.getpwnam("postgres")
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        if not self._data.exists():
            self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in _SETTINGS.items():
            command += ["-c", f"{name}={value.strip(chr(39))}"]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = spawn(
                command, stdout=log, stderr=log, user=self._user(), cwd=self._folder, start_new_session=True
            )
        end = time.monotonic() + START_SECONDS
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "5"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            user=self._user(),
            cwd=self._folder,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def log(self) -> str:
        """The end of what the server printed."""
        return (self._folder / "server.log").read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """End it without warning, as a crash does; `start` recovers what was committed."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it in order ("fast": connections are cut)."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(patient(30))
        except subprocess.TimeoutExpired:
            self.kill()
