"""A test bus and what goes through an outbox: settling waits for it."""

import asyncio
import logging
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from busway import App
from busway.sql import Outbox, Relay

pytestmark = pytest.mark.slow


async def test_settling_waits_for_the_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler sends in a transaction; the relay is held until the test has begun to settle, and what it brings is handled as well."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'service.db'}")
    app = App("shop")
    orders = app.topic("orders", value=int, format="json", partitions=1)
    parcels = app.topic("parcels", value=int, format="json", partitions=1)
    outbox = app.extend(Outbox(engine))
    shipped: list[int] = []

    @app.subscribe(orders)
    async def ship(order: int) -> None:
        async with engine.begin() as tx:
            await outbox.send(tx, parcels, order + 1)

    @app.subscribe(parcels)
    async def handle(parcel: int) -> None:
        shipped.append(parcel)
        if parcel < 3:
            async with engine.begin() as tx:
                await outbox.send(tx, parcels, parcel + 1)

    held = asyncio.Event()
    publish = Relay._round

    async def round_when_allowed(self: Relay, *given: object) -> bool:
        await held.wait()
        return await publish(self, *given)  # type: ignore[arg-type]

    status = Outbox.status

    async def status_then_allow(self: Outbox) -> object:
        current = await status(self)
        held.set()
        return current

    with caplog.at_level(logging.INFO):
        async with app.test() as bus:
            monkeypatch.setattr(Relay, "_round", round_when_allowed)
            monkeypatch.setattr(Outbox, "status", status_then_allow)
            await bus.send(orders, 0)
            await bus.settle()
            assert shipped == [1, 2, 3]
            assert [record.value for record in await bus.records(parcels)] == [1, 2, 3]
            held.set()
    await engine.dispose()
    loggers = {record.name.partition(".")[0] for record in caplog.records}
    assert not loggers & {"httpx2", "uvicorn", "alembic"}
