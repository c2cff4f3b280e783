"""A broker that answers ApiVersions, SASL and Metadata alone, over TLS or not: the other side of a client's opening.

Here: `SecuredBroker`, with a rule for each thing that a broker may refuse. It notes the requests in their order, and
closes a connection on which anything but SASL comes while it authenticates, as Kafka's broker does.
Not here: Apache Kafka, on which `tests/interop/test_secured_clusters.py` runs the clients.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ssl
from dataclasses import dataclass, field
from typing import Any, Self

from busway.security.scram import HASHES
from busway_protocol.apis import ApiKey, api, request_header_version, response_header_version
from busway_protocol.compile import decode, decode_from, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from busway_protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from busway_protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

SERVED = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA)
_SALT = b"salt-of-tests"


@dataclass(slots=True, eq=False)
class SecuredBroker:
    """A listener on a free port of 127.0.0.1, within `async with`.

    Attributes:
        tls: of its listener; None is plain text.
        mechanisms: enabled ones; None is a listener without SASL.
        users: names and passwords.
        tokens: accepted ones.
        lifetime_ms: of each authentication.
        seen: the API of each request, of all connections in one order.
        proves: whether its signature of SCRAM is right.
    """

    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] | None = None
    users: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    lifetime_ms: int = 0
    proves: bool = True
    seen: list[str] = field(default_factory=list)
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        state = _Authentication(self)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > 10_000_000:
                    return  # as Kafka's broker, for which a TLS handshake is a request that is too large
                frame = memoryview(await reader.readexactly(size))
                key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
                header, position = decode_from(RequestHeader, request_header_version(key, version), frame, 0)
                request = decode(api(key).request, version, frame, position)
                self.seen.append(api(key).name)
                answer = await state.answer(ApiKey(key), request, self.port)
                if answer is None:
                    return
                head = ResponseHeader(correlation_id=header.correlation_id)
                body = encode(head, response_header_version(key, version)) + encode(answer, version)
                writer.write(len(body).to_bytes(4, "big") + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)


@dataclass(slots=True)
class _Authentication:
    broker: SecuredBroker
    mechanism: str | None = None
    authenticated: bool = False
    scram: tuple[str, str, bytes] | None = None
    refusing: bool = False

    async def answer(self, key: ApiKey, request: Any, port: int) -> Any:
        """The answer; None where the connection ends."""
        broker = self.broker
        if key is ApiKey.API_VERSIONS:
            served = [
                ApiVersion(api_key=key, min_version=api(key).min_version, max_version=api(key).max_version)
                for key in SERVED
            ]
            return ApiVersionsResponse(error_code=0, api_keys=served)
        if key is ApiKey.SASL_HANDSHAKE:
            if broker.mechanisms is None:
                return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            if request.mechanism not in broker.mechanisms:
                code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
                return SaslHandshakeResponse(error_code=code, mechanisms=list(broker.mechanisms))
            self.mechanism, self.scram, self.authenticated = request.mechanism, None, False
            return SaslHandshakeResponse(error_code=0, mechanisms=list(broker.mechanisms))
        if key is ApiKey.SASL_AUTHENTICATE:
            return self._step(bytes(request.auth_bytes))
        if broker.mechanisms is not None and not self.authenticated:
            return None
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port, rack=None)
        return MetadataResponse(brokers=[node], cluster_id="c", controller_id=1, topics=[])

    def _step(self, message: bytes) -> SaslAuthenticateResponse:
        broker = self.broker
        if self.mechanism == "PLAIN":
            _, name, password = message.decode().split("\0")
            return self._ended(broker.users.get(name) == password)
        if self.mechanism == "OAUTHBEARER":
            if self.refusing:
                return self._ended(False)
            if message.split(b"Bearer ")[1].rstrip(b"\x01").decode() in broker.tokens:
                return self._ended(True)
            self.refusing = True
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b'{"status":"invalid_token"}')
        assert self.mechanism is not None
        digest = HASHES[self.mechanism]
        if self.scram is None:
            first = message.decode().removeprefix("n,,")
            name, nonce = (part[2:] for part in first.split(","))
            challenge = f"r={nonce}server,s={base64.b64encode(_SALT).decode()},i=4096"
            self.scram = (name, f"{first},{challenge}", challenge.encode())
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=challenge.encode())
        name, exchanged, _ = self.scram
        bare, _, proof = message.rpartition(b",p=")
        salted = hashlib.pbkdf2_hmac(digest, broker.users.get(name, "").encode(), _SALT, 4096)
        whole = exchanged.encode() + b"," + bare
        client_key = hmac.digest(salted, b"Client Key", digest)
        mask = hmac.digest(hashlib.new(digest, client_key).digest(), whole, digest)
        right = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True)) == client_key
        signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), whole, digest)
        if not broker.proves:
            signature = signature[::-1]
        return self._ended(right, b"v=" + base64.b64encode(signature))

    def _ended(self, right: bool, last: bytes = b"") -> SaslAuthenticateResponse:
        self.authenticated = right
        code = ErrorCode.NONE if right else ErrorCode.SASL_AUTHENTICATION_FAILED
        text = None if right else "Authentication failed"
        lifetime = self.broker.lifetime_ms if right else 0
        return SaslAuthenticateResponse(
            error_code=code, error_message=text, auth_bytes=last if right else b"", session_lifetime_ms=lifetime
        )
