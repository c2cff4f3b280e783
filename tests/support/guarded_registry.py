"""A registry behind a proxy with https that asks for a password, as production has one.

Here: that proxy, in this process.
Not here: the registry itself, which has neither.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.support.certificates import Certificates
from tests.support.fickle_registry import fickle_registry

USER: Final = "ann"
PASSWORD: Final = "reg1stry-pass"
_REFUSED: Final = b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 44\r\nConnection: close\r\n\r\n{"error_code":40101,"message":"who are you"}'


@asynccontextmanager
async def guarded_registry(folder: Path, authority: Certificates) -> AsyncIterator[str]:
    """Yield its address; it accepts one user."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issued("registry"))
    accepted = f"authorization: basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}".lower()
    async with fickle_registry(folder) as registry:
        port = int(registry.url.rpartition(":")[2])
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await _forward(reader, writer, port, accepted)
            writer.close()
            tasks.discard(task)

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
            yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for each in list(tasks):
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # what was closed leaves the event loop


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, accepted: str) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if accepted not in head.decode().lower():
        writer.write(_REFUSED)
        await writer.drain()
        return
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
    upstream_writer.write(head)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    try:
        await asyncio.gather(copy(reader, upstream_writer), copy(upstream_reader, writer), return_exceptions=True)
    finally:
        upstream_writer.close()
