"""An app that is stopped ends soon, whatever its brokers and handlers do."""

import asyncio
import logging
import sys
import threading
from pathlib import Path

import pytest
from tests.support.patience import patient
from tests.support.programs import spawn_async
from tests.support.proxy import Fate, Proxy

from busway import App, Context, Producer, Retry
from busway.errors import DeliveryFailed
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_end")]
SOON_S = patient(10)
"""Far below the 120 s of the delivery timeout; the test asserts that the stop does not wait for it."""


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for it."""
    monkeypatch.setattr("busway.app.application.FAREWELL_S", 0.1)
    monkeypatch.setattr("busway.app.application._LEAST_S", 0.1)


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
        for task in late:
            with pytest.raises(DeliveryFailed, match="results-0: the producer was stopped"):
                await task
    assert "records that were not acknowledged: results-0: 3" in caplog.text


LEAVES = {"consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT, "classic": ApiKey.LEAVE_GROUP}
"""What a member of each group protocol leaves with."""


@pytest.mark.parametrize("protocol", LEAVES)
@pytest.mark.parametrize("held", ["commit", "leave", "all"])
async def test_a_broker_that_is_silent_does_not_hold_an_app(
    held: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes requests and answers none: the last commit, or leaving the group, is broken off, and the log says what that means."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy:
        consumer = {"group_protocol": protocol}
        app = App("leaving", proxy.address, drain_timeout_s=0.1, commit_interval_s=600, consumer=consumer)
        things = app.topic("things", value=dict, format="json", partitions=1)
        handled = asyncio.Event()

        @app.subscribe(things)
        async def handle(value: dict) -> None:  # type: ignore[type-arg]
            handled.set()

        await app.start()
        await things.send({"n": 1})
        await handled.wait()
        proxy.strike(Fate.SWALLOW, {"commit": ApiKey.OFFSET_COMMIT, "leave": LEAVES[protocol], "all": None}[held])
        with caplog.at_level(logging.WARNING, "busway"):
            async with asyncio.timeout(SOON_S):
                await app.stop()
    assert ("handled again" in caplog.text) is (held != "leave")
    # Without the answer to the commit the next answer on the connection is not the one that is due, so the leave may fail or not.
    assert held == "commit" or "its session has to end" in caplog.text


async def test_as_many_plain_calls_as_concurrency_says_run_at_once() -> None:
    """Sixty-four wait for one another: were there fewer threads than that, none of them would come through."""
    app = App("plain")
    things = app.topic("things", value=int, format="json", partitions=1)
    together = threading.Barrier(64)

    @app.subscribe(things, concurrency=64, retry=Retry(attempts=1))
    def meet(value: int) -> None:
        together.wait(patient(10))

    async with app.test() as bus:
        await asyncio.gather(*(bus.send(things, number) for number in range(64)))
        await bus.settle()
        assert await bus.dead_letters(things) == []


async def test_a_plain_handler_sees_its_context_and_its_errors_come_back() -> None:
    """What is raised in the thread, StopIteration too, fails the record, and a call knows which attempt it is."""
    app = App("plain")
    things = app.topic("things", value=int, format="json", partitions=1)
    attempts = []

    @app.subscribe(things, retry=Retry(attempts=2))
    def fail(value: int, context: Context[None]) -> None:
        attempts.append((value, context.attempt))
        raise StopIteration if value else LookupError("no such thing")

    async with app.test() as bus:
        for number in range(2):
            await bus.send(things, number)
        await bus.settle()
        errors = [letter.error for letter in await bus.dead_letters(things)]
    assert sorted(attempts) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert errors == ["LookupError: no such thing", "RuntimeError: the handler raised StopIteration"]


async def test_a_plain_handler_that_hangs_does_not_hold_the_process() -> None:
    """SIGTERM ends it after drain_timeout_s, with a line that names the handler."""
    async with LocalCluster() as node:
        async with Producer(node.bootstrap_servers) as producer:
            await producer.send_and_wait("things", b"{}")
        process = await spawn_async(
            *(sys.executable, "-m", "busway.cli", "run", "hanging:app", "-b", node.bootstrap_servers),
            cwd=Path(__file__).parent,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"hangs\n"
            process.terminate()
            async with asyncio.timeout(SOON_S):
                _, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert "1 calls of plain functions are still running, and end with the process: hang" in err.decode()
