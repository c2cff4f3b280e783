"""Fixtures for pytest: a real broker and registry, and apps on them.

Here: the fixtures.
Not here: the started code, which is imported on first use.

| fixture | gives |
|---|---|
| `busway_cluster` | a fresh broker and registry: `bootstrap_servers`, `schema_registry`; for plain tests and coroutines
|
| | `@pytest.mark.busway(nodes=3)` on the test makes it three: `await busway_cluster.kill(1)`, `.restart(1)`, `.partition(1)` |
| `busway_bus` | `async with busway_bus(app) as bus`: an app on that cluster, as `app.test()`; several apps may share it
|
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from busway.app.application import Application
    from busway.testing.bus import TestBus
    from busway.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "busway(nodes=1): how many nodes the fixture busway_cluster has; 1, or 3 to 7.")


@pytest.fixture
def busway_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """Run a broker and a registry in a thread. They and their data end with the test."""
    from busway.testing.threaded import cluster_in_thread

    marker = request.node.get_closest_marker("busway")
    with cluster_in_thread(**({} if marker is None else marker.kwargs)) as cluster:
        yield cluster


@pytest.fixture
def busway_bus(busway_cluster: "Cluster") -> "Callable[..., AbstractAsyncContextManager[TestBus]]":
    """Run an app on the test's cluster: `async with busway_bus(app, clock="manual") as bus`."""
    from busway.testing.bus import bus_on

    def run(app: "Application", **options: Any) -> "AbstractAsyncContextManager[TestBus]":
        return bus_on(busway_cluster, app, **options)

    return run
