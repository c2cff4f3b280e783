"""A real registry for each test, on real sockets, and a plain HTTP client for it."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from tests.support.patience import patient
from tests.support.programs import spawn_async

from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
JSON = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status and JSON of an answer, with its headers."""

    status: int
    body: Any
    headers: httpx2.Headers

    @property
    def code(self) -> int:
        """Confluent's error code; the body is then that of an error and nothing else."""
        assert set(self.body) == {"error_code", "message"}, self.body
        assert isinstance(self.body["message"], str)
        assert "Traceback" not in self.body["message"]
        return int(self.body["error_code"])


class Client:
    """Requests with JSON bodies.

    Args:
        url: where the registry is.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.AsyncClient(base_url=url, timeout=patient(20), trust_env=False)

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        """One request; every answer is JSON in a media type of the registry."""
        if body is not None:
            more = {"json": body, **more}
        response = await self.http.request(method, path, **more)
        if method != "HEAD":
            assert response.headers["content-type"].startswith("application/"), response.text
        return Answer(
            status=response.status_code,
            body=response.json() if response.content else None,
            headers=response.headers,
        )

    async def get(self, path: str, **more: Any) -> Answer:
        """GET."""
        return await self.call("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Answer:
        """POST."""
        return await self.call("POST", path, body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Answer:
        """PUT."""
        return await self.call("PUT", path, body, **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        """DELETE."""
        return await self.call("DELETE", path, **more)

    async def register(self, subject: str, schema: str, **more: Any) -> Answer:
        """Register a schema under a subject, whatever its name."""
        return await self.post(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **more})


@asynccontextmanager
async def registry_process(database: str) -> AsyncIterator[tuple[Process, str]]:
    """A registry in a process of its own, and its address; killed at the end if it still runs."""
    process = await spawn_async(sys.executable, "-m", "busway_registry", "0", database, stdout=PIPE)
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), timeout=patient(30))).decode()
        assert line.startswith("serving http"), line
        yield process, line.split()[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(params=["memory", "sqlite", POSTGRES])
def database(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "postgres":
        dsn: str = request.getfixturevalue("postgres").dsn
        return dsn
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'registry.db'}"


@pytest.fixture
async def server(database: str) -> AsyncIterator[RegistryServer]:
    """One fresh registry on each kind of store."""
    async with RegistryServer(RegistryConfig(port=0, database=database)) as running:
        yield running


@pytest.fixture
async def client(server: RegistryServer) -> AsyncIterator[Client]:
    """A client of it."""
    made = Client(server.url)
    async with made.http:
        yield made
