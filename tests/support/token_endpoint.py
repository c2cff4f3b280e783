"""A token endpoint of an identity provider, in this process.

Here: `Endpoint`, whose answers a test sets; it checks no credentials.
Not here: tokens that Apache Kafka accepts (`secured_kafka.token`).
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs


@dataclass(slots=True)
class Endpoint:
    """What it answers, and the requests that it got: header and form of each."""

    status: str = "200 OK"
    body: bytes = b'{"access_token": "t0ken", "token_type": "Bearer", "expires_in": 100}'
    head: str = ""
    requests: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    url: str = ""
    raw: bytes | None = None

    def grants(self, token: str, expires_in: float = 100) -> None:
        """Answer with this token from now on."""
        self.status, self.body = "200 OK", json.dumps({"access_token": token, "expires_in": expires_in}).encode()


@asynccontextmanager
async def serving(endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """The endpoint on a free port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        form = parse_qs((await reader.readexactly(int(fields["Content-Length"]))).decode())
        endpoint.requests.append((fields.get("Authorization", ""), form))
        answer = f"HTTP/1.1 {endpoint.status}\r\n{endpoint.head}Content-Length: {len(endpoint.body)}\r\nConnection: close\r\n\r\n"
        writer.write(answer.encode() + endpoint.body if endpoint.raw is None else endpoint.raw)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        scheme = "http" if tls is None else "https"
        endpoint.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        yield endpoint
