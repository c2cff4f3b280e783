"""A real node for each test, on real sockets."""

from collections.abc import AsyncIterator

import pytest

from busway_bus.server import socket_stream
from busway_bus.testing.local_cluster import LocalCluster


@pytest.fixture(params=["our-sockets", "transports"])
def both_streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with sockets of our own, once with the event loop's transports."""
    monkeypatch.setattr(socket_stream, "AVAILABLE", request.param == "our-sockets")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """One fresh node."""
    async with LocalCluster() as running:
        yield running
