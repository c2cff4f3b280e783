"""A relay of bytes between clients and one broker, whose connections fail when a fault says so.

Here: forwarding, delays, silence, cuts in the middle of a frame.
Not here: frames of the protocol (`tests.support.proxy`), when a fault comes (`faults`).
"""

import asyncio
import contextlib
import socket
import struct
from enum import Enum
from types import TracebackType
from typing import Final

from busway_bus.testing.ports import HeldPort

_CHUNK: Final = 64 * 1024
_BEFORE_HALF: Final = 8
"""Chunks that pass on a connection before one is halved: longer than its set-up."""
DELAY_S: Final = 0.3


class Mode(Enum):
    FORWARD = "bytes pass"
    DELAY = "each chunk waits"
    SILENCE = "nothing passes, connections stay"
    HALF_ANSWER = "a response passes in half, and the connection ends"
    HALF_REQUEST = "a request passes in half, and the connection is reset on both sides"


class Relay:
    """A door to the broker at a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._held = HeldPort()
        self.port = self._held.number
        self._mode = Mode.FORWARD
        self._passes = asyncio.Event()
        self._passes.set()
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def set_mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode is Mode.SILENCE:
            self._passes.clear()
        else:
            self._passes.set()

    def cut(self) -> None:
        """End every connection; new ones are taken."""
        for link in tuple(self._links):
            _abort(*link)

    def refuse(self) -> None:
        """Take no connections, as the port of a process that is gone."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    async def __aenter__(self) -> "Relay":
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._held.release()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, broker = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        link = writer, broker
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._forward(reader, broker, link, Mode.HALF_REQUEST)),
            asyncio.ensure_future(self._forward(answers, writer, link, Mode.HALF_ANSWER)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            writer.close()
            broker.close()
            self._links.discard(link)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        half: Mode,
    ) -> None:
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.ensure_future(self._send_late(late, writer))
        passed = 0
        try:
            with contextlib.suppress(OSError):
                while chunk := await reader.read(_CHUNK):
                    passed += 1
                    if self._mode is half and passed > _BEFORE_HALF:
                        late.put_nowait((0.0, chunk[: len(chunk) // 2]))
                        await late.join()
                        if half is Mode.HALF_REQUEST:
                            _abort(*link)
                        return
                    due = loop.time() + (DELAY_S if self._mode is Mode.DELAY else 0.0)
                    late.put_nowait((due, chunk))
                await late.join()
        finally:
            sender.cancel()

    async def _send_late(self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, chunk = await late.get()
                if (left := due - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(left)
                await self._passes.wait()
                writer.write(chunk)
                await writer.drain()
                late.task_done()


def _abort(*writers: asyncio.StreamWriter) -> None:
    """Reset connections: the peer gets ECONNRESET."""
    for writer in writers:
        connection: socket.socket | None = writer.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
