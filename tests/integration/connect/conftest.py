"""A worker on the real bus in this process, and its REST API as a client sees it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from busway import Record, read_to_end
from busway_bus.testing.local_cluster import LocalCluster
from busway_connect.config import WorkerConfig
from busway_connect.server import ConnectServer

SECONDS = 20.0


class Rest:
    """Kafka Connect's REST API of one worker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.AsyncClient(base_url=url, timeout=SECONDS)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON, None without a body."""
        answer = await self.http.request(method, path, json=body)
        return answer.status_code, answer.json() if answer.content else None

    async def create(self, name: str, **config: str) -> None:
        """Make a connector; `_` in names stands for a dot."""
        body = {"name": name, "config": {one.replace("_", "."): text for one, text in config.items()}}
        status, found = await self.call("POST", "/connectors", body)
        assert status == 201, found

    async def task_state(self, name: str) -> str | None:
        """The state of its task, None without one."""
        _, found = await self.call("GET", f"/connectors/{name}/status")
        return str(found["tasks"][0]["state"]) if found.get("tasks") else None

    async def wait_for(self, name: str, state: str | None) -> None:
        """Returns when its task is in that state."""
        await until(lambda: self._is(name, state))

    async def _is(self, name: str, state: str | None) -> bool:
        return await self.task_state(name) == state


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Returns when it is so; fails when it is not in time."""
    async with asyncio.timeout(SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


async def records_of(bootstrap: str, topic: str) -> list[Record]:
    """All records of a topic, by partition and offset."""
    found = [record async for record in read_to_end(bootstrap, topic)]
    return sorted(found, key=lambda record: (record.partition, record.offset))


@pytest.fixture
async def bus() -> AsyncIterator[str]:
    """Where a fresh broker listens."""
    async with LocalCluster(properties={"group.min.session.timeout.ms": "500"}) as cluster:
        yield cluster.bootstrap_servers


def worker_config(bootstrap: str, **settings: Any) -> WorkerConfig:
    """Settings of a worker for a test."""
    return WorkerConfig(
        bootstrap_servers=bootstrap,
        port=0,
        offset_storage_partitions=1,
        status_storage_partitions=1,
        offset_flush_interval_ms=settings.pop("offset_flush_interval_ms", 50),
        **settings,
    )


@pytest.fixture
async def rest(bus: str) -> AsyncIterator[Rest]:
    """A worker that works."""
    async with ConnectServer(worker_config(bus, plugin_modules=("tests.support.connectors",))) as server:
        client = Rest(server.url)
        try:
            yield client
        finally:
            await client.http.aclose()
