"""A worker as a server: the composition root.

What lives here: joining worker and REST API; the socket; start and stop.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from types import TracebackType

import uvicorn

from busway_connect.config import WorkerConfig
from busway_connect.rest.app import create_app
from busway_connect.runtime.worker import Worker

_CLOSE_SECONDS = 5
_IDLE_SECONDS = 30


class CannotListen(OSError):
    """The port cannot be had; the text says what to do."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: who runs the process listens to signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConnectServer:
    """A worker that serves its REST API in this event loop.

    Args:
        config: its settings.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._worker: Worker | None = None

    @property
    def url(self) -> str:
        """Where clients find it; there once it has started."""
        assert self._socket is not None, "the worker has not started"
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def worker(self) -> Worker:
        """There once it has started."""
        assert self._worker is not None, "the worker has not started"
        return self._worker

    async def start(self) -> None:
        """Open the door, then take a place in the group; returns when it works or stands by.

        Raises:
            CannotListen: the port is taken or the address is not this machine's.
            BadSetting, StorageUnfit: a setting or a storage topic cannot be used.
            BuswayError: the brokers cannot be reached.
        """
        self._socket = self._bind()
        host, port = self._socket.getsockname()[:2]
        if self.config.advertised_host:
            host = self.config.advertised_host
        elif host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = socket.gethostname()
        try:
            self._worker = Worker(self.config, f"{host}:{port}")
            self._working = asyncio.ensure_future(self._worker.run())
            placed = asyncio.ensure_future(self._worker.placed.wait())
            await asyncio.wait([self._working, placed], return_when=asyncio.FIRST_COMPLETED)
            placed.cancel()
            if self._working.done():
                self._working.result()
            await self._serve()
        except BaseException:
            await self._end_work()
            self._socket.close()
            raise

    async def _serve(self) -> None:
        self._server = _Server(
            uvicorn.Config(
                create_app(self.worker),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_CLOSE_SECONDS,
            )
        )
        assert self._socket is not None
        self._serving = asyncio.ensure_future(self._server.serve([self._socket]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise CannotListen("the HTTP server ended before it served")
            await asyncio.sleep(0.001)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.config.host else socket.AF_INET
        # The protocol is named because the event loop switches Nagle's algorithm off only where it sees TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.config.host, self.config.port))
            bound.listen()
        except OSError as problem:
            bound.close()
            raise CannotListen(
                f"the worker cannot listen on {self.config.host}:{self.config.port}: {problem.strerror}; stop what holds the "
                "port, or choose another"
            ) from None
        return bound

    async def failed(self) -> None:
        """Returns never, or raises what ended the worker."""
        assert self._working is not None
        await asyncio.wait([self._working])
        self._working.result()

    async def stop(self) -> None:
        """Finish the requests under way, end every task in order, leave the group."""
        if self._server is not None:
            self._server.should_exit = True
        if self._serving is not None:
            await self._serving
            self._serving = None
        await self._end_work()
        if self._socket is not None:
            self._socket.close()

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
