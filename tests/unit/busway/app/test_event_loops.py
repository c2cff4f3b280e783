"""One app, which a module declares, in one event loop after the other: what tests of a service do."""

import asyncio
import socket
from typing import Any, cast

import pytest

from busway import App, NotRunning
from busway.app.monitoring.health import Health

TWICE = 2


def test_an_app_is_stopped_while_it_starts() -> None:
    """Its broker never answers."""

    async def start_and_stop() -> None:
        starting = asyncio.ensure_future(app.start())
        while app._starting is None:
            await asyncio.sleep(0)
        await app.stop()
        with pytest.raises(NotRunning, match="was stopped while it started"):
            await starting

    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = App("declared", f"127.0.0.1:{silent.getsockname()[1]}")
        for _ in range(TWICE):
            asyncio.run(start_and_stop())


def test_two_ask_for_the_health_of_an_app_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for the other's look."""

    async def ask(app: App) -> None:
        looks.append(app)
        await asyncio.sleep(0)

    async def start_and_look() -> None:
        await health.starting(app)
        await asyncio.gather(health.look(), health.look())

    health, app, looks = Health(clock=lambda: 0.0), cast("App", object()), list[Any]()
    monkeypatch.setattr(health, "_ask", ask)
    for _ in range(TWICE):
        asyncio.run(start_and_look())
    assert looks == [app] * TWICE
