"""A registry on SQLite in this process; the clients run in threads and processes beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer


@pytest.fixture
async def registry_url(tmp_path: Path) -> AsyncIterator[str]:
    """Where a fresh registry listens."""
    config = RegistryConfig(port=0, database=f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}")
    async with RegistryServer(config) as server:
        yield server.url
