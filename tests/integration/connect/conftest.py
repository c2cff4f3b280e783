"""A worker on the real bus in this process."""

from collections.abc import AsyncIterator

import pytest
from tests.support.connect_worker import Rest, worker_config

from busway_bus.testing.local_cluster import LocalCluster
from busway_connect.server import ConnectServer


@pytest.fixture
async def bus() -> AsyncIterator[str]:
    """Where a fresh broker listens."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "500"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
async def rest(bus: str) -> AsyncIterator[Rest]:
    """A worker that works."""
    async with ConnectServer(worker_config(bus, plugin_modules=("tests.support.connectors",))) as server:
        client = Rest(server.url)
        try:
            yield client
        finally:
            await client.http.aclose()
