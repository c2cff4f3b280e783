"""What `busway run` says at the end of records that were begun and not finished."""

import asyncio

import pytest
from tests.support.patience import patient

from busway import App, Exponential, Extension, Retry

pytestmark = pytest.mark.slow


class AtTheEnd(Extension):
    """Reads the counts when all is stopped."""

    async def stopped(self, app: App) -> None:
        assert app.worker is not None
        self.counts = (app.worker.handled, app.worker.unfinished)


async def test_unfinished_records_are_counted() -> None:
    """One that hangs and one that is parked; the one behind it that was not begun does not count, and one that was handled does not."""
    app = App("hang", drain_timeout_s=0.05)
    rides = app.topic("rides", value=dict, format="json", partitions=2)
    hanging, parked, handled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.subscribe(rides, retry=Retry(attempts=2, backoff=Exponential(1)))
    async def handle(ride: dict) -> None:  # type: ignore[type-arg]
        if ride["id"] == 1:
            raise ValueError("later")
        if ride["id"] == 3:
            hanging.set()
            await asyncio.Event().wait()
        handled.set()

    async def sleep(seconds: float) -> None:
        parked.set()
        await asyncio.Event().wait()

    end = app.extend(AtTheEnd())
    async with app.test():
        app.sleep = sleep
        for number, partition in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 1)):
            await app.send(rides, {"id": number}, "k", partition=partition)
        for event in (hanging, parked, handled):
            async with asyncio.timeout(patient(20)):
                await event.wait()
        await app.stop()
    assert end.counts == (2, 2)
