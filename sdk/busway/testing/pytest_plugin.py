"""Fixtures for pytest: a real broker and registry for a test, and apps running on them.

What lives here: the fixtures. What does not: what they start, which is loaded when a test asks for it.

| fixture | gives |
|---|---|
| `busway_cluster` | a fresh broker and registry for this test: `bootstrap_servers`, `schema_registry`; for plain tests and coroutines alike |
| `busway_bus` | `async with busway_bus(app) as bus`: the app on that cluster, as `app.test()`; several apps can be on it at once |
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from busway.app.application import Application
    from busway.testing.bus import Cluster, TestBus


@pytest.fixture
def busway_cluster() -> "Iterator[Cluster]":
    """A broker and a registry of the test's own, in a thread; they and their data end with the test."""
    from busway.testing.threaded import cluster_in_thread

    with cluster_in_thread() as cluster:
        yield cluster


@pytest.fixture
def busway_bus(busway_cluster: "Cluster") -> "Callable[..., AbstractAsyncContextManager[TestBus]]":
    """Runs an app on the test's cluster: `async with busway_bus(app, clock="manual") as bus`."""
    from busway.testing.bus import bus_on

    def run(app: "Application", **options: Any) -> "AbstractAsyncContextManager[TestBus]":
        return bus_on(busway_cluster, app, **options)

    return run
