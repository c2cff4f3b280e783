"""An app that is told to stop ends soon, whatever its brokers and handlers do."""

import asyncio
import logging

import pytest
from tests.support.proxy import Fate, Proxy

from busway import App
from busway.errors import DeliveryFailed
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = pytest.mark.slow
SOON_S = 10
"""Far below the 120 s of the delivery timeout; what is asserted is that nobody waits for that."""


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for it."""
    monkeypatch.setattr("busway.app.bus.FAREWELL_S", 0.1)
    monkeypatch.setattr("busway.app.bus._LEAST_S", 0.1)


async def test_results_that_nobody_acknowledges_do_not_hold_an_app(caplog: pytest.LogCaptureFixture) -> None:
    """The broker has gone and results are on their way: the app stops, they fail, and the log says how many of which partition."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy:
        app = App("leaving", proxy.address, drain_timeout_s=0.1)
        results = app.topic("results", value=dict, format="json", partitions=1)
        await app.start()
        await app.send(results, {"n": 0})
        await proxy.refuse()
        late = [await app.send_soon(results, {"n": number}) for number in range(3)]
        with caplog.at_level(logging.WARNING, "busway"):
            async with asyncio.timeout(SOON_S):
                await app.stop()
        for one in late:
            with pytest.raises(DeliveryFailed, match="results-0: the producer was stopped"):
                await one
    assert "records that were not acknowledged: results-0: 3" in caplog.text


@pytest.mark.parametrize("silent", [ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP, None])
async def test_a_broker_that_is_silent_does_not_hold_an_app(
    silent: ApiKey | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes requests and answers none: the last commit, or leaving the group, is broken off, and the log says what that means."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy:
        app = App("leaving", proxy.address, drain_timeout_s=0.1, commit_interval_s=600)
        things = app.topic("things", value=dict, format="json", partitions=1)
        handled = asyncio.Event()

        @app.subscribe(things)
        async def handle(thing: dict) -> None:  # type: ignore[type-arg]
            handled.set()

        await app.start()
        await things.send({"n": 1})
        await handled.wait()
        proxy.strike(Fate.SWALLOW, silent)
        with caplog.at_level(logging.WARNING, "busway"):
            async with asyncio.timeout(SOON_S):
                await app.stop()
    assert ("handled again" in caplog.text) is (silent is not ApiKey.LEAVE_GROUP)
    assert ("its session has to end" in caplog.text) is (silent is not ApiKey.OFFSET_COMMIT)
