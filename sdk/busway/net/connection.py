"""One connection to one broker.

Here: the asyncio protocol, correlation of responses, version negotiation, opening with TLS and SASL, authenticating
again before a session ends (KIP-368).
Not here: the choice of the broker (`cluster`), handshakes and certificates (`tls`), mechanisms (`sasl`).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut, UnsupportedByBroker
from busway.net import lookups
from busway.net.clock import REAL_TIME
from busway.net.keepalive import keep_alive
from busway.net.machine import current_machine
from busway.net.sasl import ClientSecurity, authenticate
from busway.net.tls import PLAIN_PORT, explained
from busway_protocol.apis import ApiKey, api, negotiate, request_head, response_head
from busway_protocol.compile import decode, encode_chunks
from busway_protocol.errors import ErrorCode, FrameRefused, ProtocolError
from busway_protocol.frames import FrameReader
from busway_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum size of a response; a TLS alert read as a size would be 352 MB."""
SETUP_TIMEOUT_S: Final = 10.0
"""Bound for dead hosts; Kafka's socket.connection.setup.timeout.ms."""
SESSION_SHARE: Final = (0.85, 0.95)
"""Part of a session after which it is renewed, drawn for each; Kafka's numbers."""
_SASL: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_TLS_PORT: Final = (
    "; the port may be one of TLS: set security_protocol to SSL or SASL_SSL, or use the port of its plain listener"
)
_SASL_PORT: Final = (
    "; if the port requires SASL, set security_protocol to SASL_SSL or SASL_PLAINTEXT, and sasl_mechanism"
)
_CLIENT_CERTIFICATE: Final = (
    "; the broker may require a client certificate that its truststore accepts: check ssl_certfile and ssl_keyfile"
)
_SOFTWARE: Final = "busway-python"
_VERSION: Final = "0.1.0"


_ALERTS: Final = frozenset({0x1503})
"""Begin of a TLS alert: its type and major version."""
_Waiting = tuple[int, int, int, asyncio.Future[Any]]
"""Correlation id, key, version, future of the response."""


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
            if refused.size >> 16 in _ALERTS:
                hint = f"; it speaks TLS{_TLS_PORT}"
            self._owner.fail(ConnectionFailed(f"{self._owner.name} sent what is no Kafka answer: {refused}{hint}"))
        except ProtocolError as problem:
            self._owner.fail(ConnectionFailed(f"{self._owner.name} sent an answer that cannot be read: {problem}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.lost(exc)


class Connection:
    """A connection to a broker.

    Args:
        timeout_s: for connecting, and by default for each response.
        security: TLS and SASL; None is plain text.
        is_known: an earlier connection to the address worked, so its port is the right one.
        of_client: whether errors name settings of clients that may help. Nodes of a cluster have none of them.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        security: ClientSecurity | None = None,
        is_known: bool = False,
        of_client: bool = True,
    ) -> None:
        self.name: str = f"{host}:{port}"
        self._host, self._port = host, port
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._is_known = is_known
        self._transport: asyncio.Transport | None = None
        self._security = security
        self._of_client = of_client
        self._waiting: deque[_Waiting] = deque()
        self._held: deque[tuple[_Waiting | None, list[Any]]] | None = None
        """Requests behind an authentication in progress, with their bytes; None while none is."""
        self._renew_at_s: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._answers = 0
        self._correlation = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._features: dict[str, int] = {}
        self._problem: BaseException | None = None
        self.when_lost: Callable[[], None] | None = None
        """Called once when the connection ends, whatever the reason."""

    @property
    def open(self) -> bool:
        return self._transport is not None and self._problem is None

    @property
    def has_worked(self) -> bool:
        """Whether a request was answered after ApiVersions, which a port with SASL answers, too."""
        return self._is_known or self._answers > 1

    @property
    def problem(self) -> BaseException | None:
        return self._problem

    @property
    def certificate_ends_s(self) -> float | None:
        """End of the broker's certificate in seconds since 1970; None without TLS."""
        certificate = None if self._transport is None else self._transport.get_extra_info("peercert")
        return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._held or ())

    async def connect(self) -> None:
        """Connect, negotiate versions, authenticate.

        Raises:
            ConnectionFailed: the port is closed, or not a Kafka broker's.
            AuthenticationFailed: certificates or credentials are refused, by the broker or here.
            RequestTimedOut: no response.
        """
        tls = None if self._security is None else await self._security.tls_context()
        self._transport = transport = await self._dial(tls)
        keep_alive(transport.get_extra_info("socket"), self._timeout_s)
        try:
            await self._negotiate()
            if self._security is not None and self._security.options.uses_sasl:
                await self._authenticate(self._security)
        except BaseException:
            self.close()
            raise

    async def _dial(self, tls: ssl.SSLContext | None) -> asyncio.Transport:
        limit_s = min(self._timeout_s, SETUP_TIMEOUT_S)
        options: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": self._host}
        plain_port = "" if tls is None else PLAIN_PORT
        try:
            async with REAL_TIME.timeout(limit_s):
                with REAL_TIME.used():
                    transport, _ = await lookups.connect(lambda: _Protocol(self), self._host, self._port, **options)
        except TimeoutError:
            raise ConnectionFailed(
                f"{self.name} did not accept a connection within {limit_s:g} s{plain_port}"
            ) from None
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as problem:
            reason = problem.strerror or "the other side closed the connection"
            raise ConnectionFailed(f"cannot connect to {self.name}: {reason}{plain_port}") from None
        except OSError as problem:
            if (refusal := explained(problem, self.name, self._host)) is not None:
                raise refusal from None
            raise ConnectionFailed(f"cannot connect to {self.name}: {problem.strerror or problem}") from None
        return transport

    async def _authenticate(self, security: ClientSecurity) -> None:
        async def ask(message: Any) -> Any:
            key = ApiKey(type(message).message_info.api_key)
            return await self._send(key, self.version(key), message)

        lifetime_ms = await authenticate(ask, security, self.name)
        least, most = SESSION_SHARE
        share = least + (most - least) * current_machine().chance.random()
        self._renew_at_s = REAL_TIME.now_s() + lifetime_ms / 1000 * share if lifetime_ms > 0 else None

    def _renew_if_due(self, key: ApiKey) -> None:
        """Start to authenticate again before the request that is about to be sent, if it is time.

        An idle connection needs none: brokers look at the session's end when a request comes. Requests that were sent
        before are answered; those that follow are held, since the broker takes nothing else until it is done.
        """
        if self._renew_at_s is None or self._held is not None or key in _SASL or REAL_TIME.now_s() < self._renew_at_s:
            return
        self._held = deque()
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="busway-authentication")

    async def _renew(self) -> None:
        assert self._security is not None
        try:
            await self._authenticate(self._security)
        except BuswayError as problem:
            self.fail(problem)
            return
        held, self._held = self._held, None
        for waiting, chunks in held or ():
            self._write(waiting, chunks)

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_VERSION)
        version = api(ApiKey.API_VERSIONS).max_version
        answer: ApiVersionsResponse = await self._send(ApiKey.API_VERSIONS, version, request)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        if answer.error_code:
            raise ConnectionFailed(f"{self.name} refused ApiVersions: {ErrorCode(answer.error_code).name}")
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
                f"{self.name} does not serve {api(key).name} in a version that this client supports"
            )
        return version

    async def request(
        self, message: Any, *, at_most: int | None = None, timeout_s: float | None = None, answer: bool = True
    ) -> Any:
        """Send a request in the highest common version and wait for its response.

        `answer` is False for a request without a response (Produce with acks 0).
        """
        key = api(type(message).message_info.api_key).key
        return await self._send(key, self.version(key, at_most), message, timeout_s, answer=answer)

    async def _send(
        self, key: ApiKey, version: int, message: Any, timeout_s: float | None = None, *, answer: bool = True
    ) -> Any:
        if self._transport is None or self._problem is not None:
            raise ConnectionFailed(f"the connection to {self.name} is closed")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = request_head(key, version, self._correlation, self._client_id)
        chunks = encode_chunks(message, version)
        size = len(head) + sum(map(len, chunks))
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = (self._correlation, key, version, waiter) if answer else None
        self._renew_if_due(key)
        if self._held is not None and key not in _SASL:
            self._held.append((waiting, [size.to_bytes(4, "big") + head, *chunks]))
        else:
            self._write(waiting, [size.to_bytes(4, "big") + head, *chunks])
        if not answer:
            return None
        limit = self._timeout_s if timeout_s is None else timeout_s
        timer = REAL_TIME.timer(limit, self._late, waiter, key, limit)
        try:
            return await waiter
        finally:
            timer.cancel()

    def _late(self, waiter: "asyncio.Future[Any]", key: ApiKey, limit: float) -> None:
        if waiter.done():
            return
        problem = RequestTimedOut(f"{self.name} did not answer {api(key).name} within {limit:g} s")
        self.fail(problem)
        if not waiter.done():  # the connection did not know it
            waiter.set_exception(problem)

    def _write(self, waiting: _Waiting | None, chunks: list[Any]) -> None:
        if self._transport is None:
            return  # it has failed, and the request with it
        self._transport.writelines(chunks)
        if waiting is not None:
            self._waiting.append(waiting)

    def answered(self, frame: memoryview) -> None:
        """Pass a response to the oldest pending request: brokers respond in order."""
        if not self._waiting:
            raise ProtocolError("a response arrived without a request")
        correlation, key, version, waiter = self._waiting[0]  # pending until it is read: `fail` ends it
        number, position = response_head(key, version, frame)
        if number != correlation:
            raise ProtocolError(f"the answer carries number {number}, {correlation} was expected")
        if key == ApiKey.API_VERSIONS and frame[position : position + 2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(
            2, "big"
        ):
            version = 0
        message = decode(api(key).response, version, frame, position)
        self._waiting.popleft()
        self._answers += 1
        if not waiter.done():
            waiter.set_result(message)

    def lost(self, problem: Exception | None) -> None:
        """End the connection after the other side has closed it, or after an error of the socket."""
        if problem is not None and (refusal := explained(problem, self.name, self._host)) is not None:
            self.fail(refusal)
            return
        text = f"the connection to {self.name} ended{f': {problem}' if problem else ''}"
        self.fail(ConnectionFailed(text + (self._hint() if self._of_client else "")))

    def _hint(self) -> str:
        """Say when a connection ended that may lack a setting, and name it."""
        options = None if self._security is None else self._security.options
        if self._is_known:
            return ""
        if self._answers == 0:
            plain = options is None or not options.uses_tls
            return f" before the first answer{_TLS_PORT if plain else _CLIENT_CERTIFICATE}"
        if self._answers == 1 and self._waiting and (options is None or not options.uses_sasl):
            return f" at the first request{_SASL_PORT}"
        return ""

    def fail(self, problem: BaseException) -> None:
        if self._problem is None:
            self._problem = problem
            if self.when_lost is not None:
                self.when_lost()
        waiting, self._waiting = self._waiting, deque()
        waiting.extend(entry for entry, _ in self._held or () if entry is not None)
        self._held = None
        for _, _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(problem)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def close(self) -> None:
        self.fail(ConnectionFailed(f"the connection to {self.name} was closed"))
