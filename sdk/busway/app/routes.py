"""What was decorated: topics with their types, handlers with their options.

What lives here: `Topic`, `ConsumerRecord` and `Route`, and what is refused when they are declared. What does not: running them
(`worker`), binding arguments (`binding`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from busway.app.failures import Retry
from busway.errors import BuswayError
from busway.types import RecordMetadata

if TYPE_CHECKING:
    from busway.app.bus import App

K = TypeVar("K")
V = TypeVar("V")
Format: TypeAlias = Literal["avro", "json", "raw"]
FORMATS: Final[tuple[Format, ...]] = ("avro", "json", "raw")
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST: Final = 249


def is_topic_name(name: str) -> bool:
    """Whether brokers take it."""
    return bool(name) and len(name) <= _LONGEST and not set(name) - _LEGAL and name not in {".", ".."}


class BadDeclaration(BuswayError):
    """A topic or a handler was declared in a way that cannot work; names it and says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecord(Generic[K, V]):
    """A record as a handler sees it: key and value typed, None for a tombstone's value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Topic(Generic[K, V]):
    """A topic with the types of its keys and values; made by `App.topic`.

    Attributes:
        name: as the brokers know it.
        key, value: types.
        format: how values are written.
        key_format: how keys are; str, int and bytes need none.
        partitions: how many to create where the topic is not there; None leaves it to the broker.
        configs: settings of the topic when it is created, by Kafka's names.
    """

    name: str
    key: type[K]
    value: type[V]
    format: Format
    key_format: Format | None
    partitions: int | None
    configs: tuple[tuple[str, str], ...]
    app: "App" = field(repr=False)

    def __post_init__(self) -> None:
        if not is_topic_name(self.name):
            raise BadDeclaration(
                f"{self.name!r} is no name for a topic: letters, digits, '.', '_' and '-', at most {_LONGEST} of them"
            )
        if self.format not in FORMATS:
            raise BadDeclaration(f"topic {self.name}: format is {', '.join(FORMATS)}, not {self.format!r}")

    async def send(
        self,
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Write a record and wait until it is acknowledged; None as the value is a tombstone.

        Raises:
            Unencodable: the value or the key is of another type.
            NotRunning: the app is not running.
            DeliveryFailed, BrokerError: it was not acknowledged.
        """
        return await self.app.send(self, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)

    async def send_soon(
        self,
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """As `send`, but returns once the record waits to be sent; the future is done when it is acknowledged.

        A handler need not wait for it: its own record counts as handled only when all that it sent is acknowledged, and the next
        record is handled meanwhile.
        """
        return await self.app.send_soon(
            self, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler, what it reads and how it fails.

    Attributes:
        function: what was decorated.
        topics: what it reads.
        call: takes a record, passes the function its arguments, and returns when it has returned.
        retry: how often and when an exception is tried again.
        dead_letter: whether records that failed for good go to the dead-letter topic; else the app stops.
    """

    function: Callable[..., Any]
    topics: tuple[Topic[Any, Any], ...]
    call: Callable[[ConsumerRecord[Any, Any]], Awaitable[Any]]
    retry: Retry
    dead_letter: bool

    @property
    def name(self) -> str:
        """The handler in messages: module and name."""
        function = self.function
        own = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{getattr(function, '__module__', type(function).__module__)}.{own}"
