"""An app while the schema registry is away: a real one that is stopped, and started again at the same address on the same data."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from busway import Admin, App, Topic
from busway.serde.registry import RegistryClient
from busway_bus.testing.local_cluster import LocalCluster
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Ride:
    ride_id: str
    price: int = 0


OldRide = dataclasses.make_dataclass("Ride", [("ride_id", str)])


class Fickle:
    """A registry that can be away."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._config = RegistryConfig(port=port, database=f"sqlite+aiosqlite:///{folder / 'registry.db'}")
        self.url = f"http://127.0.0.1:{port}"
        self._server: RegistryServer | None = None

    async def start(self) -> None:
        """It answers when this returns."""
        self._server = RegistryServer(self._config)
        await self._server.start()

    async def stop(self) -> None:
        """It does not answer any more."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


@dataclasses.dataclass
class Surroundings:
    """Where apps of a test run."""

    cluster: LocalCluster
    registry: Fickle

    def app(self, name: str, **options: Any) -> App:
        """An app here."""
        return App(name, self.cluster.bootstrap_servers, self.registry.url, commit_interval_s=0.02, **options)

    async def topics_of_dead_letters(self) -> list[str]:
        """Those that exist."""
        async with Admin(self.cluster.bootstrap_servers) as admin:
            return [name for name in await admin.list_topics() if name.endswith(".dlt")]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Surroundings]:
    """A broker and a registry."""
    registry = Fickle(tmp_path)
    await registry.start()
    try:
        async with LocalCluster() as cluster:
            yield Surroundings(cluster, registry)
    finally:
        await registry.stop()


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


async def test_what_is_known_goes_on_and_what_is_new_waits(here: Surroundings, asked_in_vain: asyncio.Event) -> None:
    """Records in known schemas are handled and sent without a registry; one in a new schema waits for it, and is no dead letter."""
    app, seen = here.app("service"), asyncio.Queue[Ride]()
    rides = app.topic("rides", value=Ride, partitions=2)
    ended = app.topic("ended", value=Ride)

    @app.publish(ended)
    @app.subscribe(rides)
    async def handle(ride: Ride) -> Ride:
        seen.put_nowait(ride)
        return ride

    other = here.app("other")
    old: Topic[str, Any] = other.topic("rides", value=OldRide)
    async with app, other, asyncio.timeout(30):
        await here.registry.stop()
        await app.send(rides, Ride("known", 1), partition=0)
        assert await seen.get() == Ride("known", 1)
        await other.send(old, OldRide("new"), partition=1)
        await asked_in_vain.wait()
        await app.send(rides, Ride("meanwhile", 2), partition=0)
        assert await seen.get() == Ride("meanwhile", 2)
        await here.registry.start()
        assert await seen.get() == Ride("new", 0)
        assert await here.topics_of_dead_letters() == []


@pytest.mark.parametrize("kind", ["table", "global_table"])
async def test_rows_in_another_version_are_read_back_once_the_registry_is_there(
    here: Surroundings, asked_in_vain: asyncio.Event, kind: str
) -> None:
    """The registry goes away between the start of an app and the reading of its rows, which an older version wrote."""
    writer = here.app("writer")
    rows: Topic[str, Any] = writer.topic("state", value=OldRide, partitions=1, configs={"cleanup.policy": "compact"})
    async with writer:
        await writer.send(rows, OldRide("r0"), "r0")

    @contextlib.asynccontextmanager
    async def without_registry(app: App) -> AsyncIterator[None]:
        await here.registry.stop()
        yield

    app = here.app("service", lifespan=without_registry)
    state: Any = getattr(app, kind)("state", value=Ride)
    events, handled = app.topic("events", value=str, format="json", partitions=1), asyncio.Event()

    @app.subscribe(events)
    async def handle(event: str) -> None:
        assert state["r0"] == Ride("r0", 0)
        handled.set()

    async with asyncio.timeout(30):
        starting = asyncio.ensure_future(app.start())
        await asked_in_vain.wait()
        await here.registry.start()
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
    assert await here.topics_of_dead_letters() == []
