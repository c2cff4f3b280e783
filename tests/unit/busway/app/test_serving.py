"""An app until a signal: whenever that comes, it is neither lost nor does it end the process at once."""

import asyncio
import signal

import pytest

from busway import App, ConnectionFailed
from busway.app.serving import serve
from busway.net.signals import ENDING


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[App]:
    """The apps that were started, which needs no broker."""
    apps: list[App] = []

    async def start(app: App) -> None:
        apps.append(app)

    monkeypatch.setattr(App, "start", start)
    return apps


@pytest.mark.parametrize("number", ENDING)
async def test_a_signal_while_the_brokers_are_waited_for_stops_that(number: signal.Signals, started: list[App]) -> None:
    """The wait is cancelled, and the app is not started."""
    cancelled = asyncio.Event()

    async def unreachable() -> None:
        signal.raise_signal(number)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await serve(App("a"), unreachable)
    assert cancelled.is_set()
    assert started == []


@pytest.mark.parametrize("number", ENDING)
async def test_a_signal_as_the_brokers_are_reached_is_not_lost(number: signal.Signals, started: list[App]) -> None:
    """Between the last answer and the start, or after it."""

    async def reached() -> None:
        signal.raise_signal(number)

    await serve(App("a"), reached)


async def test_brokers_that_cannot_be_reached_are_an_error(started: list[App]) -> None:
    """The app is not started."""

    async def unreachable() -> None:
        raise ConnectionFailed("no broker")

    with pytest.raises(ConnectionFailed, match="no broker"):
        await serve(App("a"), unreachable)
    assert started == []
