"""An app that is given partitions while what it needs is away: the registry, or the broker; real ones, gone and back on the same data."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.fickle_registry import FickleRegistry, fickle_registry
from tests.support.patience import patient

from busway import Admin, App, Extension, Topic, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Ride:
    ride_id: str
    price: int = 0


OldRide = dataclasses.make_dataclass("Ride", [("ride_id", str)])


class Said(logging.Handler):
    """Waits for what the app logs."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part
        self.said = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """A line of the log."""
        if self._part in record.getMessage():
            self.said.set()


@contextlib.asynccontextmanager
async def said(part: str) -> AsyncIterator[asyncio.Event]:
    """Set once the app has logged something with these words."""
    handler, logger = Said(part), logging.getLogger("busway.app")
    logger.addHandler(handler)
    try:
        yield handler.said
    finally:
        logger.removeHandler(handler)


class Service:
    """An app whose handler needs a row that an older version wrote.

    Args:
        kind: of its table.
    """

    def __init__(self, cluster: LocalCluster, registry: FickleRegistry, kind: str, **options: Any) -> None:
        self._where = cluster.bootstrap_servers, registry.url
        self.app = App("service", *self._where, **options)
        self._kind = kind
        self.handled = asyncio.Event()

    def declare(self) -> None:
        """The table and the handler."""
        state: Any = getattr(self.app, self._kind)("state", value=Ride)
        self.events = self.app.topic("events", value=str, format="json", partitions=1)

        @self.app.subscribe(self.events)
        async def handle(event: str) -> None:
            assert state["r0"] == Ride("r0", 0)
            self.handled.set()

    async def write(self) -> None:
        """The row, as the older version does."""
        writer = App("writer", *self._where)
        rows: Topic[str, Any] = writer.topic("state", value=OldRide, partitions=1, configs=COMPACT)
        async with writer:
            await writer.send(rows, OldRide("r0"), "r0")

    async def handles(self) -> None:
        """Returns when it has handled an event, raises what ended it before."""
        await self.app.send(self.events, "e0")
        waits = [asyncio.ensure_future(self.handled.wait()), asyncio.ensure_future(self.app.wait())]
        done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in left:
            wait.cancel()
        for wait in done:
            wait.result()


COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[FickleRegistry]:
    """One that is there at first."""
    async with fickle_registry(tmp_path) as url:
        yield url


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """A broker."""
    async with LocalCluster() as local_cluster:
        yield local_cluster


@pytest.mark.parametrize("kind", ["table", "global_table"])
async def test_rows_of_another_version_are_read_back_once_the_registry_is_there(
    cluster: LocalCluster, registry: FickleRegistry, kind: str
) -> None:
    """It goes away between the start of the app and the reading of its rows; the app waits, or ends on request."""

    @contextlib.asynccontextmanager
    async def without_registry(app: App) -> AsyncIterator[None]:
        await registry.stop()
        yield

    service = Service(cluster, registry, kind, lifespan=without_registry)
    service.declare()
    await service.write()
    for comes_back in (False, True):
        async with asyncio.timeout(patient(30)), said("state-0 waits at offset 0") as waits:
            starting = asyncio.ensure_future(service.app.start())
            await waits.wait()
            if comes_back:
                await registry.start()
                await starting
                await service.handles()
            await service.app.stop()
            await asyncio.gather(starting, return_exceptions=True)
            if not comes_back:
                await registry.start()
    async with Admin(cluster.bootstrap_servers) as admin:
        assert not [name for name in await admin.list_topics() if name.endswith(".dlt")]


async def test_rows_are_read_back_though_the_broker_dies_before(
    cluster: LocalCluster, registry: FickleRegistry
) -> None:
    """It crashes when the group has just given the partition away; the app waits until it is back."""

    class Crash(Extension):
        async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            if not crashed.is_set():
                crashed.set()
                await cluster.crash()
            return {}

    crashed = asyncio.Event()
    service = Service(cluster, registry, "table")
    service.app.extend(Crash())
    service.declare()
    await service.write()
    async with asyncio.timeout(patient(30)), said("table state waits") as waits, service.app:
        await waits.wait()
        await cluster.start()
        await service.handles()
