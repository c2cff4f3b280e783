"""A Kafka client that does nothing by itself: whole frames in, whole frames out, closed when the test says so.

Here: a connection and the framing of a message.
Not here: what the messages mean.
"""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Any, Final

from busway_protocol.apis import ApiKey, api, response_header_version
from busway_protocol.compile import decode, encode
from busway_protocol.headers import RequestHeader
from busway_protocol.schema import info_of
from tests.support.patience import patient

ANSWER_WITHIN_S: Final = patient(10.0)


def key_of(message: object) -> ApiKey:
    """The API that a request belongs to."""
    key = info_of(type(message)).api_key
    assert key is not None
    return ApiKey(key)


def frame(message: object, version: int, correlation_id: int = 7) -> bytes:
    """A request as it goes over the wire."""
    header_version = 2 if info_of(type(message)).flexible(version) else 1
    header = RequestHeader(
        request_api_key=key_of(message), request_api_version=version, correlation_id=correlation_id, client_id="test"
    )
    data = encode(header, header_version) + encode(message, version)
    return struct.pack(">i", len(data)) + data


class RawClient:
    """One connection."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._host, _, port = bootstrap_servers.rpartition(":")
        self._port = int(port)

    async def __aenter__(self) -> "RawClient":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def reset(self) -> None:
        """End the connection as a network does: the broker gets ECONNRESET."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def send(self, data: bytes) -> None:
        """Send, without waiting for an answer."""
        self._writer.write(data)

    async def drained(self) -> None:
        """Return when the kernel has what was sent."""
        await self._writer.drain()

    async def frame(self) -> bytes:
        """The next answer without its size, b"" where the connection was closed."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""

    async def ask(self, message: object, version: int) -> Any:
        """One question, and its answer decoded."""
        self.send(frame(message, version))
        answer = await self.frame()
        assert answer, f"no answer to {type(message).__name__}"
        key = key_of(message)
        start = 4 + response_header_version(key, version)
        return decode(api(key).response, version, answer, start)

    async def find_coordinator(self, group: str) -> None:
        """Have the coordinator of a group made."""
        from busway_protocol.messages.groups_classic import FindCoordinatorRequest

        answer = await self.ask(FindCoordinatorRequest(key=group), 2)
        assert answer.error_code == 0, answer
