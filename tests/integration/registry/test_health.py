"""The registry's health over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer
from busway_registry.store.interface import StoreFailed, Transaction


async def test_a_failed_database_makes_it_unready(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays alive, and the response has no text of the database."""
    server = RegistryServer(RegistryConfig(port=0, database=f"sqlite+aiosqlite:///{tmp_path}/registry.db"))
    async with server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        ready = await http.get("/health/ready")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})

        @asynccontextmanager
        async def failing() -> AsyncIterator[Transaction]:
            raise StoreFailed("no route to secret.host")
            yield

        monkeypatch.setattr(server._store, "read", failing)
        ready = await http.get("/health/ready")
        assert ready.status_code == 503
        assert ready.json() == {"ready": False, "reasons": ["the database cannot be read; see the registry's log"]}
        assert (await http.get("/health/live")).json() == {"live": True}
