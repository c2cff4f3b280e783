"""One connection to one broker.

Not here: the choice of the broker (`cluster`).
"""

import asyncio
from collections import deque
from typing import Any, Final, TypeVar

from busway.errors import ConnectionFailed, RequestTimedOut, UnsupportedByBroker
from busway.net.clock import REAL_TIME
from busway.net.keepalive import keep_alive
from busway_protocol.apis import ApiKey, api, negotiate, request_header_version, response_header_version
from busway_protocol.compile import decode, decode_from, encode, encode_chunks
from busway_protocol.errors import ErrorCode, FrameRefused, ProtocolError
from busway_protocol.frames import FrameReader
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum size of a response; a TLS alert read as a size would be 352 MB."""
SETUP_TIMEOUT_S: Final = 10.0
"""Bound for dead hosts; Kafka's socket.connection.setup.timeout.ms."""
_SOFTWARE: Final = "busway-python"
_VERSION: Final = "0.1.0"


class _Protocol(asyncio.Protocol):
    def __init__(self, owner: "Connection") -> None:
        self._owner = owner
        self._reader = FrameReader(RESPONSE_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._owner.answered(frame)
        except FrameRefused as refused:
            hint = "; does it speak TLS or another protocol?" if refused.size > RESPONSE_BYTES_MAX else ""
            self._owner.fail(ConnectionFailed(f"{self._owner.name} sent what is no Kafka answer: {refused}{hint}"))
        except ProtocolError as problem:
            self._owner.fail(ConnectionFailed(f"{self._owner.name} sent an answer that cannot be read: {problem}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.fail(ConnectionFailed(f"the connection to {self._owner.name} ended{f': {exc}' if exc else ''}"))


class Connection:
    """A connection to a broker. `timeout_s` is for connecting, and by default for each response."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float) -> None:
        self.name = f"{host}:{port}"
        self._host, self._port = host, port
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._correlation = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._features: dict[str, int] = {}
        self._problem: BaseException | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None and self._problem is None

    @property
    def problem(self) -> BaseException | None:
        return self._problem

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def connect(self) -> None:
        """Connect and negotiate versions.

        Raise `ConnectionFailed` if the port is closed or not a Kafka broker's, `RequestTimedOut`.
        """
        loop = asyncio.get_running_loop()
        limit_s = min(self._timeout_s, SETUP_TIMEOUT_S)
        try:
            async with REAL_TIME.timeout(limit_s):
                with REAL_TIME.used():
                    transport, _ = await loop.create_connection(lambda: _Protocol(self), self._host, self._port)
        except TimeoutError:
            raise ConnectionFailed(f"{self.name} did not accept a connection within {limit_s:g} s") from None
        except OSError as problem:
            raise ConnectionFailed(f"cannot connect to {self.name}: {problem.strerror or problem}") from None
        self._transport = transport
        keep_alive(transport.get_extra_info("socket"), self._timeout_s)
        try:
            await self._negotiate()
        except BaseException:
            self.close()
            raise

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_VERSION)
        version = api(ApiKey.API_VERSIONS).max_version
        answer: ApiVersionsResponse = await self._send(ApiKey.API_VERSIONS, version, request)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        if answer.error_code:
            raise ConnectionFailed(f"{self.name} does not tell what it speaks: {ErrorCode(answer.error_code).name}")
        self._ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        self._features = {entry.name: entry.max_version_level for entry in answer.finalized_features}

    def feature(self, name: str) -> int:
        """Return a feature's finalized level when the connection was made (KIP-584), else 0."""
        return self._features.get(name, 0)

    def version(self, key: ApiKey, at_most: int | None = None) -> int:
        """Return the version to use for an API; raise `UnsupportedByBroker` without a common one."""
        offered = self._ranges.get(key)
        if offered is not None and at_most is not None:
            offered = (offered[0], min(offered[1], at_most))
        version = negotiate(key, offered) if offered else None
        if version is None:
            raise UnsupportedByBroker(
                f"{self.name} does not serve {api(key).name} in a version that this client speaks"
            )
        return version

    async def request(
        self, message: Any, *, at_most: int | None = None, timeout_s: float | None = None, answer: bool = True
    ) -> Any:
        """Send a request in the highest common version and wait for its response.

        `at_most` is the highest version; `answer` is False for a request without a response (Produce with acks 0).
        """
        key = ApiKey(type(message).message_info.api_key)
        return await self._send(key, self.version(key, at_most), message, timeout_s, answer=answer)

    async def _send(
        self, key: ApiKey, version: int, message: Any, timeout_s: float | None = None, *, answer: bool = True
    ) -> Any:
        if self._transport is None or self._problem is not None:
            raise ConnectionFailed(f"the connection to {self.name} is closed")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._correlation,
            client_id=self._client_id,
        )
        head = encode(header, request_header_version(key, version))
        chunks = encode_chunks(message, version)
        size = len(head) + sum(map(len, chunks))
        self._transport.writelines([size.to_bytes(4, "big") + head, *chunks])
        if not answer:
            return None
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation, key, version, waiter))
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with REAL_TIME.timeout(limit):
                return await waiter
        except TimeoutError:
            problem = RequestTimedOut(f"{self.name} did not answer {api(key).name} within {limit:g} s")
            self.fail(problem)
            raise problem from None

    def answered(self, frame: memoryview) -> None:
        """Pass a response to the oldest pending request: brokers respond in order."""
        if not self._waiting:
            raise ProtocolError("a response arrived without a request")
        correlation, key, version, waiter = self._waiting.popleft()
        header, position = decode_from(ResponseHeader, response_header_version(key, version), frame, 0)
        if header.correlation_id != correlation:
            self._waiting.appendleft((correlation, key, version, waiter))
            raise ProtocolError(f"the answer carries number {header.correlation_id}, {correlation} was expected")
        if key == ApiKey.API_VERSIONS and frame[position : position + 2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(
            2, "big"
        ):
            version = 0
        try:
            message = decode(api(key).response, version, frame, position)
        except ProtocolError:
            self._waiting.appendleft((correlation, key, version, waiter))
            raise
        if not waiter.done():
            waiter.set_result(message)

    def fail(self, problem: BaseException) -> None:
        if self._problem is None:
            self._problem = problem
        waiting, self._waiting = self._waiting, deque()
        for _, _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(problem)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def close(self) -> None:
        self.fail(ConnectionFailed(f"the connection to {self.name} was closed"))
