"""`app.test()`: an app on a broker and a registry of its own, on real sockets, in this process.

What lives here: starting them, and what a test asks of them. What does not: a fake; there is none. Waits between attempts are skipped.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from busway.admin.admin import Admin
from busway.app.bus import App
from busway.app.failures import dead_letter_topic
from busway.app.routes import BadDeclaration, ConsumerRecord, Headers, Topic
from busway.consumer.snapshot import read_to_end
from busway.types import Record, RecordMetadata, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
SETTLE_S: Final = 20.0
_EARLIEST, _LATEST = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was put aside.

    Attributes:
        key, value: bytes, as they came.
        error: class and text of the exception.
        attempts: calls of the handler.
        headers: all of them; see `busway.app.failures.dead_letter_headers`.
    """

    key: bytes | None
    value: bytes | None
    error: str
    attempts: int
    headers: tuple[tuple[str, bytes | None], ...]


class TestBus:
    """What a test does with a running app; made by `App.test`."""

    __test__ = False  # no test class for pytest

    def __init__(self, app: App) -> None:
        self.app = app
        self.waited_s: list[float] = []
        """The waits between attempts that were skipped."""

    async def send(
        self, topic: Topic[K, V], value: V | None, key: K | None = None, *, headers: Headers = ()
    ) -> RecordMetadata:
        """Write a record, as another service would."""
        return await self.app.send(topic, value, key, headers=headers)

    async def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until every record of every subscribed topic is handled, those included that handlers wrote.

        Raises:
            AssertionError: that did not happen in time; tells what is left.
            HandlerFailed: the app stopped by itself.
        """
        async with asyncio.timeout(None) as deadline, Admin(self.app.bootstrap_servers) as admin:
            deadline.reschedule(asyncio.get_running_loop().time() + timeout_s + 5)
            loop = asyncio.get_running_loop()
            end = loop.time() + timeout_s
            while left := await self._left(admin):
                worker = self.app.worker
                assert worker is not None
                worker.progress.clear()
                if left != await self._left(admin):
                    continue
                waits = [asyncio.ensure_future(worker.progress.wait()), asyncio.ensure_future(self.app.wait())]
                await asyncio.wait(waits, timeout=max(end - loop.time(), 0), return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                if waits[1].done() and not waits[1].cancelled():
                    await waits[1]
                assert loop.time() < end, f"not settled after {timeout_s} s; records not handled yet: {left}"

    async def _left(self, admin: Admin) -> dict[str, int]:
        worker = self.app.worker
        if worker is None:
            return {}
        names = {topic.name for route in self.app.routes for topic in route.topics}
        described = await admin.describe_topics(sorted(names))
        partitions = [TopicPartition(name, one.number) for name in names for one in described[name].partitions]
        ends = await admin.list_offsets(dict.fromkeys(partitions, _LATEST))
        committed = await admin.list_group_offsets(self.app.group_id)
        done = worker.positions()
        left = {}
        for partition, end in ends.items():
            at = done.get(partition)
            if at is None:
                found = committed.get(partition)
                at = found.offset if found is not None else 0
            if at < end:
                left[f"{partition.topic}-{partition.partition}"] = end - at
        return left

    async def records(self, topic: Topic[K, V]) -> list[ConsumerRecord[K, V]]:
        """All records of a topic, typed, by partition and offset."""
        found = [record async for record in self.app.read(topic)]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def dead_letters(self, topic: Topic[Any, Any]) -> list[DeadLetter]:
        """The records of a topic that the app put aside."""
        found = []
        for record in await self._read(dead_letter_topic(topic.name, self.app.group_id)):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            kind = headers["kafka_dlt-exception-fqcn"].rpartition(".")[2]
            found.append(
                DeadLetter(
                    key=record.key,
                    value=record.value,
                    error=f"{kind}: {headers['kafka_dlt-exception-message']}",
                    attempts=int(headers["busway_dlt-attempts"]),
                    headers=record.headers,
                )
            )
        return found

    async def restart(self) -> None:
        """Stop the app, draining, and start it again on the same bus: what it committed is what it goes on from."""
        await self.app.stop()
        await self.app.start()

    async def _read(self, topic: str) -> list[Record]:
        async with Admin(self.app.bootstrap_servers) as admin:
            if topic not in await admin.list_topics():
                return []
        found = [record async for record in read_to_end(self.app.bootstrap_servers, topic)]
        return sorted(found, key=lambda record: (record.partition, record.offset))


@contextlib.asynccontextmanager
async def running_test_bus(app: App) -> AsyncIterator[TestBus]:
    """The app, started on a fresh broker and, where it needs one, a fresh registry; both end with the block.

    Raises:
        BadDeclaration: the broker or the registry is not installed; names the extra.
    """
    try:
        from busway_bus.testing.local_cluster import LocalCluster
        from busway_registry.config import RegistryConfig
        from busway_registry.server import RegistryServer
    except ImportError as missing:
        raise BadDeclaration(
            f"app.test() needs the broker and the registry: pip install 'busway[bus,registry]' ({missing})"
        ) from None
    bus = TestBus(app)

    async def skip(seconds: float) -> None:
        bus.waited_s.append(seconds)
        await asyncio.sleep(0)

    before = (app.bootstrap_servers, app.schema_registry, app.sleep)
    async with LocalCluster() as cluster, RegistryServer(RegistryConfig(port=0, database="memory:")) as registry:
        app.bootstrap_servers, app.schema_registry, app.sleep = cluster.bootstrap_servers, registry.url, skip
        try:
            async with app:
                yield bus
        finally:
            app.bootstrap_servers, app.schema_registry, app.sleep = before
