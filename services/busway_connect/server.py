"""A worker as a server: the composition root.

Here: joining worker and REST API; start and stop.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from types import TracebackType

from busway.net.http_server import serving
from busway.net.listening import bind, in_url
from busway_connect.config import WorkerConfig
from busway_connect.rest.app import create_app
from busway_connect.runtime.worker import Worker


class ConnectServer:
    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._port: int | None = None
        self._working: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._running = AsyncExitStack()

    @property
    def url(self) -> str:
        """Address for clients; available after the start."""
        assert self._port is not None, "the worker has not started"
        return f"http://{in_url(self.config.host)}:{self._port}"

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "the worker has not started"
        return self._worker

    async def start(self) -> None:
        """Listen, then join the group; return once the worker works or stands by.

        Raises:
            CannotListen: the address is unavailable.
            BadSetting, StorageUnfit: an unusable setting or storage topic.
            BuswayError: the brokers are unreachable.
        """
        async with AsyncExitStack() as starting:
            bound = starting.enter_context(await bind(self.config.host, self.config.port, subject="the worker"))
            self._worker = Worker(self.config, self._advertised(bound))
            starting.push_async_callback(self._end_work)
            self._working = asyncio.ensure_future(self._worker.run())
            placed = asyncio.ensure_future(self._worker.placed.wait())
            try:
                await asyncio.wait([self._working, placed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                placed.cancel()
            if self._working.done():
                self._working.result()
            await starting.enter_async_context(serving(create_app(self.worker), bound))
            self._port = bound.getsockname()[1]
            self._running = starting.pop_all()

    def _advertised(self, bound: socket.socket) -> str:
        host, port = bound.getsockname()[:2]
        if self.config.advertised_host:
            host = self.config.advertised_host
        elif host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = socket.gethostname()
        return f"{in_url(host)}:{port}"

    async def failed(self) -> None:
        """Wait for ever, or raise the worker's failure."""
        assert self._working is not None
        await asyncio.wait([self._working])
        self._working.result()

    async def stop(self) -> None:
        """Finish current requests, stop all tasks, leave the group."""
        await self._running.aclose()

    async def _end_work(self) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
            await asyncio.wait([working])

    async def __aenter__(self) -> "ConnectServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
