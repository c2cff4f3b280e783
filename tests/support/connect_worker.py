"""A worker of connectors as tests use it: in this process or one of its own, and its REST API as a client sees it.

Here: what the suites of connectors share.
Not here: brokers, databases, connectors for tests (`connectors`).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from busway import Record, read_to_end
from busway_connect.config import WorkerConfig
from tests.support.patience import patient
from tests.support.programs import spawn
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = patient(20.0)


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
        """Make a connector; `_` in names stands for a dot. Asks again while the worker is taking over, as on a busy machine."""
        body = {"name": name, "config": {key.replace("_", "."): text for key, text in config.items()}}
        answers: list[tuple[int, Any]] = []

        async def answered() -> bool:
            answers.append(await self.call("POST", "/connectors", body))
            return "momentarily" not in answers[-1][1].get("message", "")

        await until(answered)
        assert answers[-1][0] == 201, answers[-1]

    async def task_state(self, name: str) -> str | None:
        """The state of its task, None without one."""
        _, status = await self.call("GET", f"/connectors/{name}/status")
        return str(status["tasks"][0]["state"]) if status.get("tasks") else None

    async def wait_for(self, name: str, state: str | None) -> None:
        """Returns when its task is in that state."""
        await until(lambda: self._is(name, state))

    async def _is(self, name: str, state: str | None) -> bool:
        return await self.task_state(name) == state


async def records_of(bootstrap: str, topic: str, isolation_level: str = "read_uncommitted") -> list[Record]:
    """All records of a topic, by partition and offset."""
    records = [record async for record in read_to_end(bootstrap, topic, isolation_level=isolation_level)]
    return sorted(records, key=lambda record: (record.partition, record.offset))


def worker_config(bootstrap: str, **settings: Any) -> WorkerConfig:
    """Settings of a worker for a test."""
    return WorkerConfig(
        bootstrap_servers=bootstrap,
        port=0,
        offset_storage_partitions=1,
        status_storage_partitions=1,
        offset_flush_interval_ms=settings.pop("offset_flush_interval_ms", 50),
        plugin_modules=("busway_connect.file_stream", *settings.pop("plugin_modules", ())),
        **settings,
    )


class WorkerProcess:
    """`busway connect` in a process of its own, which does not outlive the `async with` block, however that ends."""

    def __init__(self, bootstrap: str, *, flush_ms: int = 50, session_ms: int = 600, support: str = "disabled") -> None:
        settings = {
            "exactly.once.source.support": support,
            "plugin.modules": "tests.support.connectors,busway_connect.file_stream",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": str(flush_ms),
            "session.timeout.ms": str(session_ms),
            "heartbeat.interval.ms": "100",
        }
        overrides = [part for name, text in settings.items() for part in ("--override", f"{name}={text}")]
        self.process = spawn(
            [sys.executable, "-m", "busway.cli", "connect", "-b", bootstrap, "--port", "0", "--json", *overrides],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        )

    async def url(self) -> str:
        """Where it listens; waits until it works or stands by."""
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line, "the worker did not start"
        return str(json.loads(line)["connect"])

    @asynccontextmanager
    async def rest(self) -> AsyncIterator[Rest]:
        """Its REST API; waits until it works or stands by."""
        client = Rest(await self.url())
        try:
            yield client
        finally:
            await client.http.aclose()

    async def __aenter__(self) -> "WorkerProcess":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it."""
        self.process.send_signal(number)
        code = await asyncio.to_thread(self.process.wait, SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
