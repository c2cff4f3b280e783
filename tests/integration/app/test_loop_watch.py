"""A handler that keeps the event loop is named while it does."""

import time

import pytest
from tests.support.patience import patient

from busway import App

pytestmark = pytest.mark.slow
PATIENCE_S = patient(20.0)


async def test_a_handler_that_keeps_the_event_loop_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the line that runs, from a thread that the handler does not keep; and how long it took, once it is over."""
    monkeypatch.setattr("busway.app.handling.loop_watchdog.LAG_S", 0.1)
    monkeypatch.setattr("busway.app.handling.loop_watchdog._LOOK_EVERY_S", 0.05)
    app = App("stuck")
    things = app.topic("things", value=int, format="json", partitions=1)

    def compute() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while "handle has kept the event loop" not in caplog.text and time.monotonic() < deadline:
            pass

    @app.subscribe(things)
    async def handle(value: int) -> None:
        compute()

    async with app.test() as bus:
        await bus.send(things, 1)
        await bus.settle()
    (line,) = [text for text in caplog.messages if "handle has kept the event loop" in text]
    assert ".py:" in line
    assert any("the event loop runs again after" in text for text in caplog.messages)
