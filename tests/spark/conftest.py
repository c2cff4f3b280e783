"""One Spark session for all tests, and a bus whose event loop runs in a thread, because Spark's calls block."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from tools.jars import need

from busway_bus.testing.local_cluster import LocalCluster
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

T = TypeVar("T")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Spark in this process, with its Kafka source."""
    need("java", "openjdk-17-jdk-headless")
    try:
        from busway_spark.session import session
    except ImportError as missing:
        pytest.fail(f"{missing}: pip install -e '.[dev,spark]', or run `make spark`")
    running = session("tests", settings={"spark.sql.shuffle.partitions": "1"})
    yield running
    running.stop()


@dataclass
class Bus:
    """A broker and a registry in another thread."""

    loop: asyncio.AbstractEventLoop
    bootstrap_servers: str = ""
    registry: str = ""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the bus's event loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@pytest.fixture
def bus() -> Iterator[Bus]:
    """A fresh one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = Bus(loop)
    cluster = LocalCluster()
    registry = RegistryServer(RegistryConfig(port=0, database="memory:"))
    running.run(cluster.__aenter__())
    running.run(registry.start())
    running.bootstrap_servers, running.registry = cluster.bootstrap_servers, registry.url
    yield running
    running.run(registry.stop())
    running.run(cluster.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
