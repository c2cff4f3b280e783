"""The registry as a server: the composition root.

Here: joining store, use cases and HTTP; start and stop.
"""

from contextlib import AsyncExitStack
from types import TracebackType

from busway.net.http_server import serving
from busway.net.listening import bind, in_url
from busway.net.machine import OS
from busway_protocol.machine import Machine
from busway_registry.config import RegistryConfig
from busway_registry.http.app import create_app
from busway_registry.service import Registry
from busway_registry.settings import Settings
from busway_registry.store.interface import Store, StoreFailed
from busway_registry.store.memory import MemoryStore
from busway_registry.validation.pool import Pool
from busway_registry.validation.validator import SchemaValidator


class NoStore(OSError):
    """The database is unusable; the text has its URL and the reason."""


class RegistryServer:
    def __init__(self, config: RegistryConfig, machine: Machine = OS) -> None:
        self.config = config
        try:
            self._store = open_store(config.database)
        except StoreFailed as problem:
            raise _no_store(config.database, problem) from None
        settings = Settings(self._store, config.compatibility_level, mutable_mode=config.mutable_mode)
        self._pool = Pool()
        registry = Registry(self._store, settings, SchemaValidator(self._pool), now_ms=machine.wall_ms)
        self._app, self._metrics = create_app(registry)
        self._port: int | None = None
        self._running = AsyncExitStack()

    @property
    def url(self) -> str:
        """Address for clients; available after the start."""
        assert self._port is not None, "the registry has not started"
        return f"http://{in_url(self.config.host)}:{self._port}"

    @property
    def database(self) -> str:
        return _shown(self.config.database)

    @property
    def judging(self) -> list[int]:
        """Ids of processes that validate large schemas; None before the first."""
        return self._pool.pids

    async def start(self) -> None:
        """Open the store, then listen.

        Raises:
            CannotListen: the address is unavailable.
            NoStore: the database is unusable.
        """
        async with AsyncExitStack() as starting:
            bound = starting.enter_context(await bind(self.config.host, self.config.port, subject="the registry"))
            starting.push_async_callback(self._store.close)
            try:
                await self._store.open()
            except StoreFailed as problem:
                raise _no_store(self.config.database, problem) from None
            starting.push_async_callback(self._pool.close)
            self._metrics.connections = await starting.enter_async_context(serving(self._app, bound))
            self._port = bound.getsockname()[1]
            self._running = starting.pop_all()

    async def stop(self) -> None:
        await self._running.aclose()

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
    if database == "memory:":
        return MemoryStore()
    from busway_registry.store.sql import SqlStore  # slow to import

    return SqlStore(database)
