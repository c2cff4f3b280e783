"""PostgreSQL as a part of a demo: a server of its own on a free port, with logical decoding on.

Here: finding it, making its data, starting it, waiting until it answers.
Not here: what is in it.
"""

import asyncio
import os
import pwd
import shutil
from pathlib import Path
from typing import Final

from kit.parts import START_S, DemoFailed, Part, Parts, free_port

INSTALL: Final = "PostgreSQL's server is not installed: apt-get install -y postgresql"
SETTINGS: Final = (
    "listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical", "max_connections=50", "shared_buffers=64MB",
)  # fmt: skip
RESTARTS_MOST: Final = 20
_WAIT_S: Final = 0.05


class Postgres:
    """One server with the superuser `postgres`, without a password; killed and started again through `part`.

    Attributes:
        part: its process.
        port: of the loopback address; the same after a restart.
    """

    name = "postgres"

    def __init__(self, part: Part, port: int, ready: tuple[str, ...]) -> None:
        self.part = part
        self.port = port
        self._ready = ready

    @property
    def dsn(self) -> str:
        """For psycopg."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    @classmethod
    async def start(cls, parts: Parts) -> "Postgres":
        """A new server in the demo's folder; returns when it answers.

        Raises:
            DemoFailed: it is not installed (says how to install it), or does not start.
        """
        folder = find()
        data, port = parts.folder / "postgres", free_port()
        as_user = _as_user(parts.folder)
        await _run(*as_user, str(folder / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                   "--no-locale", "--no-sync")  # fmt: skip
        options = [option for setting in SETTINGS for option in ("-c", setting)]
        command = (*as_user, str(folder / "postgres"), "-D", str(data), "-p", str(port), *options)
        part = await parts.start("postgres", *command)
        postgres = cls(part, port, (str(folder / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)))
        await postgres.ready()
        return postgres

    async def ready(self) -> None:
        """Returns when it answers.

        Raises:
            DemoFailed: it has ended, or does not answer in time.
        """
        try:
            async with asyncio.timeout(START_S):
                while await (await asyncio.create_subprocess_exec(*self._ready)).wait():
                    self.part.check()
                    await asyncio.sleep(_WAIT_S)
        except TimeoutError:
            raise DemoFailed(f"postgres did not answer for {START_S:.0f} s:\n{self.part.tail()}") from None

    async def kill_and_restart(self) -> None:
        """A crash and its recovery: what was committed is there again.

        Raises:
            DemoFailed: it does not start again.
        """
        await self.part.kill()
        for left in reversed(range(RESTARTS_MOST)):
            await self.part.start_again()
            try:
                await self.ready()
                break
            except DemoFailed:
                # As long as children of the one that was killed have its memory, it refuses to start.
                if not left:
                    raise
                await asyncio.sleep(_WAIT_S)


def find() -> Path:
    """The folder of the server's programs.

    Raises:
        DemoFailed: there is none; says how to install it.
    """
    beside = Path(program).resolve().parent if (program := shutil.which("postgres")) else None
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    for folder in (beside, *reversed(debian)):
        if folder is not None and all((folder / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            return folder
    raise DemoFailed(INSTALL)


def _as_user(folder: Path) -> tuple[str, ...]:
    """The server refuses to run as root; then it runs as `postgres`, whom the package makes, and who may come into the folder."""
    if os.geteuid() != 0:
        return ()
    account = pwd.getpwnam("postgres")
    folder.chmod(0o711)
    (folder / "postgres").mkdir(mode=0o700)
    os.chown(folder / "postgres", account.pw_uid, account.pw_gid)
    return ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd="/"
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise DemoFailed(f"{command[0]} failed:\n{said.decode(errors='replace')[-2000:]}")
