"""Results of the decorators: topics with their types, handlers with their options.

Here: `Topic`, `ConsumerRecord`, `Route`, and the protocols of a topic's app.
Not here: running them (`handling`), binding arguments (`binding`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    runtime_checkable,
)

from busway.app.model.retry import Retry
from busway.errors import BuswayError
from busway.serde.naming import Part
from busway.types import Addresses, ProducerRecord, Record, RecordMetadata, SendOptions

if TYPE_CHECKING:
    from busway.producer.producer import KeyValueHeaders
    from busway.security.options import SecurityOptions

K = TypeVar("K")
V = TypeVar("V")
Format: TypeAlias = Literal["avro", "json", "raw"]
Guarantee: TypeAlias = Literal["at_least_once", "exactly_once"]
Ordering: TypeAlias = Literal["key", "partition", "none"]
ORDERINGS: Final[tuple[Ordering, ...]] = ("key", "partition", "none")
GUARANTEES: Final[tuple[Guarantee, ...]] = ("at_least_once", "exactly_once")
FORMATS: Final[tuple[Format, ...]] = ("avro", "json", "raw")
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST: Final = 249
BATCH_MAX: Final = 1000
"""Records of a partition fetched ahead for a handler; the bound of a batch."""
OPEN_MAX_EXACTLY: Final = 250
"""Unfinished records of a partition per exactly_once handler without partition order.

What is finished ahead must fit into an offset's metadata in any pattern, because none of it may be redelivered.
"""


def is_topic_name(name: str) -> bool:
    return bool(name) and len(name) <= _LONGEST and not set(name) - _LEGAL and name not in {".", ".."}


class BadDeclaration(BuswayError):
    """A topic or handler was declared in a way that cannot work; names it and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecord(Generic[K, V]):
    """A record for a handler: key and value typed, None for a tombstone's value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name, None without one."""
        return next((value for header_name, value in reversed(self.headers) if header_name == name), None)


class TopicOptions(TypedDict, total=False):
    """Options of a topic or table with keys of type str; see `App.topic`."""

    format: Format
    partitions: int | None
    configs: Mapping[str, str] | None


class KeyedTopicOptions(TopicOptions, total=False):
    """Options of a topic or table with keys of another type."""

    key_format: Format | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Topic(Generic[K, V]):
    """A topic with the types of its keys and values; made by `App.topic`, whose arguments its attributes are."""

    name: str
    key: type[K]
    value: type[V]
    format: Format
    key_format: Format | None
    partitions: int | None
    configs: tuple[tuple[str, str], ...]
    read_only: bool
    app: "TopicOwner" = field(repr=False)

    def __post_init__(self) -> None:
        if not is_topic_name(self.name):
            raise BadDeclaration(
                f"{self.name!r} is no name for a topic: letters, digits, '.', '_' and '-', at most {_LONGEST} of them"
            )
        if self.format not in FORMATS:
            raise BadDeclaration(f"topic {self.name}: format is {', '.join(FORMATS)}, not {self.format!r}")
        if self.format == "raw" and self.value is not bytes:
            raise BadDeclaration(f"topic {self.name}: raw values are bytes as they come, so value=bytes")
        if self.partitions is not None and (not isinstance(self.partitions, int) or self.partitions < 1):
            raise BadDeclaration(f"topic {self.name}: partitions is 1 or more, not {self.partitions!r}")
        for setting, value in self.configs:
            if not isinstance(value, str):
                raise BadDeclaration(f"topic {self.name}: configs are strings, {setting}={value!r} is not")

    async def send(
        self,
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> RecordMetadata:
        """Write a record and wait until it is acknowledged; None as the value is a tombstone.

        Args:
            options: headers; partition, by default chosen by the key; timestamp_ms, by default now.

        Raises:
            Unencodable: the value or the key is of another type.
            BadDeclaration: the topic is read_only.
            NotRunning: the app is not running.
            DeliveryFailed, BrokerError: it was not acknowledged.
        """
        return await self.app.send(self, value, key, **options)

    async def send_soon(
        self,
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> "asyncio.Future[RecordMetadata]":
        """As `send`, but return once the record is queued; the future is done on acknowledgement.

        A handler need not wait: its record is finished only when all its sends are acknowledged, and the next record is
        handled meanwhile.
        """
        return await self.app.send_soon(self, value, key, **options)


class TopicSerdes(Protocol):
    """Conversion of keys and values; see `busway.app.serdes.Serdes`."""

    def knows(self, topic: Topic[Any, Any]) -> bool:
        """Whether it was prepared."""

    async def prepare(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Create serdes; register schemas."""

    def encode(self, topic: Topic[Any, Any], part: Part, value: Any) -> bytes | None:
        """Encode a key or value; None stays None."""

    def encoder(self, topic: Topic[Any, Any], part: Part) -> Callable[[Any], bytes]:
        """Return the encoder of keys or values that are not None."""

    async def decode(self, record: Record) -> ConsumerRecord[Any, Any]:
        """Decode a record; wait while the registry is unavailable."""

    async def close(self) -> None:
        """Disconnect from the registry."""


class OpenOutput(Protocol):
    """Records from outside of handlers for one transaction of the app."""

    def keep(self, record: ProducerRecord) -> None:
        """Send it with the transaction."""

    def on_settled(self, callback: Callable[[bool], None]) -> None:
        """Call back with whether it was committed."""

    def commit(self) -> None:
        """Queue it for one of the next transactions."""


class TopicOwner(Protocol):
    """The app, as topics and tables see it."""

    @property
    def name(self) -> str:
        """The app's name."""

    @property
    def bootstrap_servers(self) -> Addresses:
        """The brokers' addresses."""

    @property
    def security(self) -> "SecurityOptions":
        """TLS and SASL of connections to brokers."""

    @property
    def is_running(self) -> bool:
        """Whether it can send."""

    @property
    def serdes(self) -> TopicSerdes:
        """The serdes of the running app; `NotRunning` if it does not run."""

    def new_serdes(self) -> TopicSerdes:
        """Create serdes for use while the app does not run; the caller closes them."""

    async def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> RecordMetadata:
        """As `Topic.send`."""

    async def send_soon(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        **options: Unpack[SendOptions],
    ) -> "asyncio.Future[RecordMetadata]":
        """As `Topic.send_soon`."""

    async def send_encoded(
        self, topic: Topic[Any, Any], records: "Iterable[KeyValueHeaders]", *, partition: int, linger: bool
    ) -> "list[asyncio.Future[RecordMetadata]]":
        """As `Producer.send_many`; in a handler, its record is finished when they are acknowledged."""

    def open_output(self, topics: Collection[str], partition: int) -> OpenOutput | None:
        """Return output that commits with these topics' exactly_once partition; None if it is not assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Options of a handler that takes batches of one partition's records, in order.

    Attributes:
        max_records: up to 1000.
        max_wait_s: how long to wait for more after the first.
    """

    max_records: int = 500
    max_wait_s: float = 0.05

    def __post_init__(self) -> None:
        if not 1 <= self.max_records <= BATCH_MAX or self.max_wait_s < 0:
            raise BadDeclaration(f"{self!r}: max_records is 1 to {BATCH_MAX}, max_wait_s 0 or more")


@runtime_checkable
class TransactionalInbox(Protocol):
    """A database that remembers handled records, for `subscribe(sql=…)`."""

    def handling(self, group: str, record: ConsumerRecord[Any, Any]) -> AbstractAsyncContextManager[Any | None]:
        """Surround one attempt at a record with a transaction.

        It enters as the handler's `tx`, or as None if the record was handled before. It commits the writes together
        with the record's mark, or rolls back if the handler raised.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Target of a handler's result; `key` takes the result, None is the handled record's key."""

    topic: "Topic[Any, Any] | str"
    key: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler with its topics and options; other attributes are the arguments of `App.subscribe`.

    Attributes:
        publications: targets of its results.
        group: the share group of a queue; None for the app's own consumer group.
    """

    function: Callable[..., Any]
    topics: tuple[Topic[Any, Any], ...]
    retry: Retry
    dead_letter: bool
    ordering: Ordering = "key"
    concurrency: int = 1
    where: Callable[[ConsumerRecord[Any, Any]], bool] | None = None
    timeout_s: float | None = None
    batch: Batch | None = None
    sql: TransactionalInbox | None = None
    guarantee: Guarantee = "at_least_once"
    publications: tuple[Publication, ...] = ()
    group: str | None = None

    @property
    def name(self) -> str:
        function = self.function
        own = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{getattr(function, '__module__', type(function).__module__)}.{own}"
