"""The registry as a server: the composition root.

What lives here: joining store, use cases and HTTP; the socket; start and stop.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from types import TracebackType

import uvicorn

from busway_registry.config import RegistryConfig
from busway_registry.http.app import create_app
from busway_registry.service import Registry
from busway_registry.settings import Settings
from busway_registry.store.interface import Store, StoreFailed
from busway_registry.store.memory import MemoryStore

_CLOSE_SECONDS = 5
_IDLE_SECONDS = 30
"""As Confluent's server keeps idle connections; clients with a pool send their next request on one."""


class CannotListen(OSError):
    """The port cannot be had; the text says what to do."""


class NoStore(OSError):
    """The database cannot be used; the text says which and why."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: who runs the process listens to signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RegistryServer:
    """A registry that serves HTTP in this event loop.

    Args:
        config: its settings.

    Raises:
        NoStore: the database cannot be used.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config
        try:
            self._store = open_store(config.database)
        except StoreFailed as problem:
            raise _no_store(config.database, problem) from None
        settings = Settings(self._store, config.compatibility_level, mutable_mode=config.mutable_mode)
        registry = Registry(self._store, settings, now_ms=lambda: int(time.time() * 1000))
        self._server = _Server(
            uvicorn.Config(
                create_app(registry),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_CLOSE_SECONDS,
            )
        )
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where clients find it; there once it has started."""
        assert self._socket is not None, "the registry has not started"
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def database(self) -> str:
        """Where it keeps things, without any secret."""
        return _shown(self.config.database)

    async def start(self) -> None:
        """Open the store, then the door.

        Raises:
            CannotListen: the port is taken or the address is not this machine's.
            NoStore: the database cannot be used.
        """
        self._socket = self._bind()
        try:
            await self._store.open()
        except StoreFailed as problem:
            self._socket.close()
            await self._store.close()
            raise _no_store(self.config.database, problem) from None
        except BaseException:
            self._socket.close()
            raise
        self._serving = asyncio.ensure_future(self._server.serve([self._socket]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise CannotListen("the HTTP server ended before it served")
            await asyncio.sleep(0.001)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.config.host else socket.AF_INET
        # The protocol is named because the event loop switches Nagle's algorithm off only where it sees TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.config.host, self.config.port))
        except OSError as problem:
            bound.close()
            raise CannotListen(
                f"the registry cannot listen on {self.config.host}:{self.config.port}: {problem.strerror}; stop what holds the "
                "port, or choose another"
            ) from None
        return bound

    async def stop(self) -> None:
        """Finish what is under way, then close."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
            self._serving = None
        await self._store.close()
        if self._socket is not None:
            self._socket.close()

    async def __aenter__(self) -> "RegistryServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _no_store(database: str, problem: StoreFailed) -> NoStore:
    return NoStore(f"the registry cannot use its database {_shown(database)}: {problem}")


def _shown(database: str) -> str:
    if database == "memory:":
        return database
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(database).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return database.partition(":")[0]


def open_store(database: str) -> Store:
    """The store for a database URL; not opened yet."""
    if database == "memory:":
        return MemoryStore()
    from busway_registry.store.sql import SqlStore  # SQLAlchemy takes its time to load

    return SqlStore(database)
