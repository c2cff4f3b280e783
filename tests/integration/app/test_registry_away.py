"""An app that reads its tables back while the schema registry is away: a real one, stopped and started again on the same data."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fickle_registry import fickle_registry

from busway import Admin, App, Topic
from busway.serde.registry import RegistryClient
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Ride:
    ride_id: str
    price: int = 0


OldRide = dataclasses.make_dataclass("Ride", [("ride_id", str)])


@pytest.fixture
def asked_in_vain(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when somebody has asked for a schema and got no answer."""
    event, real = asyncio.Event(), RegistryClient.schema

    async def schema(self: RegistryClient, schema_id: int) -> str:
        try:
            return await real(self, schema_id)
        except BaseException:
            event.set()
            raise

    monkeypatch.setattr(RegistryClient, "schema", schema)
    return event


@pytest.mark.parametrize("kind", ["table", "global_table"])
async def test_rows_in_another_version_are_read_back_once_the_registry_is_there(
    tmp_path: Path, asked_in_vain: asyncio.Event, kind: str
) -> None:
    """The registry goes away between the start of an app and the reading of its rows, which an older version wrote; the app waits."""
    async with asyncio.timeout(30), fickle_registry(tmp_path) as registry, LocalCluster() as cluster:
        where = cluster.bootstrap_servers, registry.url
        writer = App("writer", *where)
        rows: Topic[str, Any] = writer.topic(
            "state", value=OldRide, partitions=1, configs={"cleanup.policy": "compact"}
        )
        async with writer:
            await writer.send(rows, OldRide("r0"), "r0")

        @contextlib.asynccontextmanager
        async def without_registry(app: App) -> AsyncIterator[None]:
            await registry.stop()
            yield

        app = App("service", *where, lifespan=without_registry)
        state: Any = getattr(app, kind)("state", value=Ride)
        events, handled = app.topic("events", value=str, format="json", partitions=1), asyncio.Event()

        @app.subscribe(events)
        async def handle(event: str) -> None:
            assert state["r0"] == Ride("r0", 0)
            handled.set()

        starting = asyncio.ensure_future(app.start())
        await asked_in_vain.wait()
        await registry.start()
        await starting
        try:
            await app.send(events, "e0")
            waits = [asyncio.ensure_future(handled.wait()), asyncio.ensure_future(app.wait())]
            done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in left:
                wait.cancel()
            for wait in done:
                wait.result()
        finally:
            await app.stop()
        assert handled.is_set()
        async with Admin(cluster.bootstrap_servers) as admin:
            assert not [name for name in await admin.list_topics() if name.endswith(".dlt")]
