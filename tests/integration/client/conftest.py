"""A real node for each test, on real sockets."""

from collections.abc import AsyncIterator

import pytest

from busway_bus.testing.local_cluster import LocalCluster


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """One fresh node."""
    async with LocalCluster() as running:
        yield running
