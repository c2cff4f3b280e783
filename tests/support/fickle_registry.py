"""A schema registry that goes away and comes back at the same address with what it had: in this process, on real sockets.

Here: that registry.
Not here: one that is killed as a process (`examples/case_studies/kit/parts`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from busway_bus.testing.ports import HeldPort
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer


class FickleRegistry:
    """Stopped until it is started.

    Args:
        folder: for its database.

    Attributes:
        url: its address, always the same.
    """

    def __init__(self, folder: Path) -> None:
        self._port = HeldPort()  # while it is stopped, too
        self.url = f"http://127.0.0.1:{self._port.number}"
        self._config = RegistryConfig(port=self._port.number, database=f"sqlite+aiosqlite:///{folder / 'registry.db'}")
        self._server: RegistryServer | None = None

    async def start(self) -> None:
        """It answers when this returns."""
        self._server = RegistryServer(self._config)
        await self._server.start()

    async def stop(self) -> None:
        """It does not answer any more."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


@asynccontextmanager
async def fickle_registry(folder: Path) -> AsyncIterator[FickleRegistry]:
    """One that is there at first."""
    registry = FickleRegistry(folder)
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()
