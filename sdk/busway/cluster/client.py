"""Access to a cluster for producers, consumers and admins.

Here: connections by broker, fresh metadata, requests with retries.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from busway.cluster.metadata import ClusterMetadata
from busway.cluster.rate_limited_log import RateLimitedLog
from busway.errors import AuthenticationFailed, BrokerError, BuswayError, ConnectionFailed, NotRunning, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.connection import Connection
from busway.net.machine import current_machine
from busway.net.retry import Backoff, RetryTimer
from busway.net.sasl import ClientSecurity
from busway.security.options import PLAINTEXT, SecurityOptions
from busway.types import Addresses
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import FindCoordinatorRequest, FindCoordinatorResponse
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger: logging.Logger = logging.getLogger("busway.cluster")

METADATA_MAX_AGE_S: Final = 300.0
"""Maximum age of metadata; Kafka's metadata.max.age.ms."""
_BATCHED_COORDINATORS: Final = 4


class RecoveryOptions(Protocol):
    """Options of any client."""

    @property
    def metadata_recovery_strategy(self) -> Literal["rebootstrap", "none"]: ...
    @property
    def metadata_recovery_rebootstrap_trigger_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MetadataRecovery:
    """When a client starts over from its bootstrap servers (KIP-899, KIP-1102).

    Attributes:
        strategy: "rebootstrap", or "none" for never.
        trigger_ms: time without an answer for metadata, beside the case that no known broker can be reached.
    """

    strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    trigger_ms: int = 300_000

    def __post_init__(self) -> None:
        if self.strategy not in {"rebootstrap", "none"}:
            raise ValueError(f"metadata_recovery_strategy: {self.strategy!r} is not 'rebootstrap' or 'none'")

    @staticmethod
    def of(options: RecoveryOptions) -> "MetadataRecovery":
        return MetadataRecovery(options.metadata_recovery_strategy, options.metadata_recovery_rebootstrap_trigger_ms)


class CoordinatorKind(Enum):
    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


def parse_addresses(bootstrap_servers: Addresses) -> list[tuple[str, int]]:
    """Parse `host:port` pairs from a string with commas or a list; raise `ValueError`."""
    texts = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    addresses = []
    for raw in texts:
        text = raw.strip()
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, "9092"
        if not host or not port.isdigit():
            raise ValueError(f"bootstrap_servers: {text!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


class ClusterClient:
    """Connections to a cluster.

    Args:
        bootstrap_servers: initial addresses, tried again as `recovery` says.
        request_timeout_s: for each response.
        create_topics: brokers may auto-create requested topics.
        security: TLS and SASL of all connections.
        recovery: see `MetadataRecovery`.
    """

    def __init__(
        self,
        bootstrap_servers: Addresses,
        *,
        client_id: str,
        request_timeout_s: float = 30.0,
        create_topics: bool = False,
        security: SecurityOptions = PLAINTEXT,
        recovery: MetadataRecovery = MetadataRecovery(),
    ) -> None:
        self._recovery = recovery
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = request_timeout_s
        self._create_topics = create_topics
        self._security = None if security == PLAINTEXT else ClientSecurity(security)
        self._connections: dict[tuple[tuple[str, int], str], Connection] = {}
        self._connecting: dict[tuple[tuple[str, int], str], asyncio.Lock] = {}
        self._rate_limited_log = RateLimitedLog(logger)
        self._reached: set[tuple[str, int]] = set()
        self._refreshing = asyncio.Lock()
        self._refreshed_at = 0.0
        self._refreshes = 0
        self._last_refresh: tuple[int, BuswayError | None] = (0, None)
        """Number of the last one that ended, and its error."""
        self._failing_since: float | None = None
        self._aborted = False
        self.metadata: ClusterMetadata = ClusterMetadata()
        self.topics: set[str] = set()

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def backoff(self) -> Backoff:
        return Backoff(current_machine().chance.random)

    async def start(self) -> None:
        """Connect to a broker.

        Raises:
            ConnectionFailed: no bootstrap server is reachable.
            AuthenticationFailed: they refuse this client, or their certificates are refused.
        """
        await self.refresh()

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def abort(self) -> None:
        """Close all connections permanently: later requests raise NotRunning, without retries."""
        self._aborted = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Connections

    async def connection(self, node_id: int, purpose: str = "") -> Connection:
        """Return the connection to a broker; `purpose` separates long polls.

        Raise `ConnectionFailed` if it is unknown or unreachable.
        """
        address = self.metadata.brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} is not in the cluster's metadata")
        return await self._open((address, purpose), *address, advertised=True)

    async def _open(
        self, key: tuple[tuple[str, int], str], host: str, port: int, *, advertised: bool = False
    ) -> Connection:
        existing = self._connections.get(key)
        if existing is not None and existing.open:
            return existing
        async with self._connecting.setdefault(key, asyncio.Lock()):
            existing = self._connections.get(key)
            if existing is not None and existing.open:
                return existing
            connection = Connection(
                host,
                port,
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                security=self._security,
                is_known=self._has_worked((host, port)),
            )
            self._check()
            try:
                await connection.connect()
            except AuthenticationFailed:
                raise
            except ConnectionFailed as problem:
                if (host, port) in self._reached:
                    self._rate_limited_log.log(logging.WARNING, (host, port), "%s: %s", self._client_id, problem)
                elif advertised:
                    raise ConnectionFailed(
                        f"{problem}; this is the address that the broker advertises, check its advertised.listeners"
                    ) from None
                raise
            if self._aborted:
                connection.close()
            self._check()
            self._connections[key] = connection
            if existing is not None:
                text = "%s: connected again to %s; %s"
                self._rate_limited_log.log(logging.INFO, key, text, self._client_id, connection.name, existing.problem)
            self._reached.add((host, port))
            return connection

    def _has_worked(self, address: tuple[str, int]) -> bool:
        return any(known.has_worked for (place, _), known in self._connections.items() if place == address)

    def _check(self) -> None:
        if self._aborted:
            raise NotRunning(f"the client {self._client_id} was aborted")

    async def any_connection(self) -> Connection:
        """Return the open connection with the fewest pending requests, or open a new one.

        Known brokers are tried first, those last that did not respond to the last request on a connection, then bootstrap
        servers, unless the recovery strategy is "none". Raise `ConnectionFailed` if none is reachable.
        """
        self._check()
        silent = {
            address
            for (address, _), connection in self._connections.items()
            if isinstance(connection.problem, RequestTimedOut)
        }
        # Not behind a long poll, nor behind a broker that does not respond.
        idle = [
            connection
            for (address, purpose), connection in self._connections.items()
            if connection.open and not purpose and address not in silent
        ]
        if idle:
            return min(idle, key=lambda connection: connection.waiting)
        problems: list[BuswayError] = []
        known = list(self.metadata.brokers.values())
        current_machine().chance.shuffle(known)
        known.sort(key=silent.__contains__)
        starts_over = self._recovery.strategy == "rebootstrap" or not known
        for host, port in dict.fromkeys([*known, *(self._bootstrap if starts_over else ())]):
            try:
                connection = await self._open(((host, port), ""), host, port)
            except BuswayError as problem:
                problems.append(problem)
                continue
            if known and (host, port) not in known:
                text = "%s: no known broker can be reached, starting over from bootstrap server %s"
                self._rate_limited_log.log(logging.WARNING, "rebootstrap", text, self._client_id, connection.name)
            return connection
        refused = [problem for problem in problems if isinstance(problem, AuthenticationFailed)]
        if refused:  # by one, while the others cannot be reached
            raise refused[0]
        why = "; ".join(dict.fromkeys(map(str, problems)))
        more = "" if starts_over else "; bootstrap_servers are not tried again: metadata_recovery_strategy is none"
        raise ConnectionFailed(f"no broker can be reached: {why}; is one running? `busway up` starts one{more}")

    async def ask_any(self, message: Any) -> Any:
        connection = await self.any_connection()
        return await connection.request(message)

    async def ask_node(self, node_id: int, message: Any) -> Any:
        connection = await self.connection(node_id)
        return await connection.request(message)

    async def ask_controller(self, message: Any) -> Any:
        if self.metadata.controller not in self.metadata.brokers:
            await self.refresh()
        return await self.ask_node(self.metadata.controller, message)

    # Metadata

    async def refresh(self, *, every_topic: bool = False) -> None:
        """Get new metadata; concurrent callers share a refresh that begins after their call, and its error."""
        begun = self._refreshes
        async with self._refreshing:
            last, problem = self._last_refresh
            if last > begun and not every_topic:
                if problem is not None:
                    raise problem.with_traceback(None)
                return
            self._refreshes += 1
            number = self._refreshes
            begun_s = REAL_TIME.now_s()
            self._start_over_if_due()
            names = None if every_topic else [MetadataRequestTopic(name=name) for name in sorted(self.topics)]
            request = MetadataRequest(topics=names, allow_auto_topic_creation=self._create_topics)
            try:
                answer = await self._ask_for_metadata(request)
            except BuswayError as failed:
                if self._failing_since is None:
                    self._failing_since = begun_s
                self._last_refresh = number, failed
                raise
            self._failing_since = None
            self.metadata.update(answer, all_topics=every_topic)
            self._refreshed_at, self._last_refresh = REAL_TIME.now_s(), (number, None)

    async def _ask_for_metadata(self, request: MetadataRequest) -> MetadataResponse:
        try:
            answer: MetadataResponse = await self.ask_any(request)
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, RequestTimedOut):
            answer = await self.ask_any(request)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._recovery.strategy == "rebootstrap":
            self._start_over("a broker requires it")
            answer = await self.ask_any(request)
        if answer.error_code:
            raise BrokerError(error_for(answer.error_code), "getting metadata")
        return answer

    def _start_over_if_due(self) -> None:
        if self._recovery.strategy == "none" or self._failing_since is None or not self.metadata.brokers:
            return
        failing_s = REAL_TIME.now_s() - self._failing_since
        if failing_s * 1000 > self._recovery.trigger_ms:
            self._start_over(f"no metadata for {failing_s:.0f} s")
            self._failing_since = REAL_TIME.now_s()

    def _start_over(self, why: str) -> None:
        """Forget the brokers and close the connections to them, so that a bootstrap server is asked next."""
        addresses = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        logger.warning("%s: starting over from bootstrap_servers %s: %s", self._client_id, addresses, why)
        self.metadata.brokers = {}
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    @property
    def is_old(self) -> bool:
        """Whether metadata is due for a refresh, which finds new partitions and leaders without an error."""
        return REAL_TIME.now_s() - self._refreshed_at > METADATA_MAX_AGE_S

    async def ensure_topics(self, topics: Iterable[str], timeout_s: float | None = None) -> None:
        """Wait until `topics` are in the metadata.

        Raise `BrokerError` if one is not available, for instance UNKNOWN_TOPIC_OR_PARTITION; `ConnectionFailed`.
        """
        wanted = set(topics)
        self.topics |= wanted
        timer = RetryTimer(self.backoff(), self._timeout_s if timeout_s is None else timeout_s)
        while True:
            if all(name in self.metadata.topics for name in wanted):
                return
            problem: BuswayError | None = None
            try:
                await self.refresh()
            except AuthenticationFailed:
                raise
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            missing = [name for name in wanted if name not in self.metadata.topics]
            if problem is None and missing:
                code = self.metadata.problems.get(missing[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                text = f"does not exist, and {self._why_not_created()}; create it first" if unknown else None
                problem = BrokerError(code, f"topic {missing[0]}", text)
            if problem is None:
                return
            permanent = isinstance(problem, BrokerError) and not problem.retriable
            if permanent or timer.is_expired:
                self.topics.difference_update(missing)  # requested again, it would be auto-created
                raise problem
            await timer.sleep()

    def _why_not_created(self) -> str:
        if self._create_topics:
            return "the brokers create none when it is asked for"
        return "this client creates none (allow_auto_create_topics)"

    async def topic_names(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of existing topics, and add them to every refresh."""
        asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        answer: MetadataResponse = await self.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        names = {topic.topic_id: topic.name for topic in answer.topics if topic.name and not topic.error_code}
        self.topics |= set(names.values())
        await self.refresh()
        return names

    async def find_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Return the id of the coordinator; wait while it is unavailable.

        Raise `BrokerError` if it refuses the key, `ConnectionFailed` at the request timeout.
        """
        timer = RetryTimer(self.backoff(), self._timeout_s)
        while True:
            problem: BuswayError
            try:
                connection = await self.any_connection()
                answer: FindCoordinatorResponse = await connection.request(
                    FindCoordinatorRequest(key=key, key_type=kind.value), at_most=_BATCHED_COORDINATORS - 1
                )
                code = error_for(answer.error_code)
                if code is ErrorCode.NONE:
                    if answer.node_id not in self.metadata.brokers:
                        await self.refresh()
                    return answer.node_id
                problem = BrokerError(code, f"{kind} {key}", answer.error_message)
                if not code.retriable:
                    raise problem
            except AuthenticationFailed:
                raise
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            await timer.sleep_or_raise(problem)
