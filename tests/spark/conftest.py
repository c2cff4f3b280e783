"""A bus whose event loop runs in a thread, because Spark's calls block."""

import asyncio
import io
import json
import struct
import threading
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fastavro
import pytest
from tests.support.patience import patient

from busway import Admin, App, NewTopic, Producer, RegistryClient, Topic
from busway_bus.testing.local_cluster import LocalCluster
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

T = TypeVar("T")


@dataclass
class Bus:
    """A broker and a registry in another thread."""

    loop: asyncio.AbstractEventLoop
    bootstrap_servers: str = ""
    registry: str = ""
    cluster: LocalCluster = field(default_factory=LocalCluster)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the bus's event loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(patient(60))

    @property
    def servers(self) -> dict[str, str]:
        """As `read_topic` and its like take them."""
        return {"bootstrap_servers": self.bootstrap_servers, "schema_registry": self.registry}

    @property
    def arguments(self) -> list[str]:
        """As a job's command line takes them."""
        return ["--bootstrap-servers", self.bootstrap_servers, "--registry", self.registry]

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic."""

        async def make() -> None:
            async with Admin(self.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name, partitions, configs=configs)])

        self.run(make())

    def send(self, topic: str, records: Iterable[tuple[Any, ...]], **options: Any) -> None:
        """Write (key, value), with a partition or a time or headers behind them if need be."""

        async def write() -> None:
            async with Producer(self.bootstrap_servers, **options) as producer:
                for key, value, *more in records:
                    await producer.send(topic, value, key, **(more[0] if more else {}))

        self.run(write())

    def register(self, subject: str, schema: Any, references: Any = ()) -> int:
        """Register a schema without any check against earlier ones; its id."""

        async def put() -> int:
            async with RegistryClient(self.registry) as registry:
                await registry.set_compatibility("NONE", subject)
                text = schema if isinstance(schema, str) else json.dumps(schema)
                body = {"schema": text, "references": list(references)}
                return int((await registry.request("POST", f"/subjects/{subject}/versions", body))["id"])

        return self.run(put())

    def events(self, topic: str, kind: type, rows: Iterable[dict[str, Any]], partitions: int = 2) -> None:
        """Write typed events, as a service does; the key is the first field."""

        async def write() -> None:
            app = App("writer", self.bootstrap_servers, self.registry)
            target: Topic[str, Any] = app.topic(topic, key=str, value=kind, partitions=partitions)
            async with app:
                for row in rows:
                    await target.send(kind(**row), key=str(next(iter(row.values()))))

        self.run(write())


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """A value as a serializer with a registry writes it."""
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.fixture
def bus() -> Iterator[Bus]:
    """A fresh one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = Bus(loop)
    registry = RegistryServer(RegistryConfig(port=0, database="memory:"))
    running.run(running.cluster.__aenter__())
    running.run(registry.start())
    running.bootstrap_servers, running.registry = running.cluster.bootstrap_servers, registry.url
    yield running
    running.run(registry.stop())
    running.run(running.cluster.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
