"""Interface of connectors: a `Source` reads an external system, a `Sink` writes to one.

Here: the interface.
Not here: the runtime (`worker`, `rest`), connectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from busway_connect.schema import Schema

Offset = Mapping[str, Any]
"""A source's position as JSON, such as `{"lsn": 123}`; opaque to the runtime."""
Config = Mapping[str, str]
"""A connector's settings, as text."""


class ConfigInvalid(ValueError):
    """Missing or invalid settings; `errors` has a message for each."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in errors.items()))
        self.errors = dict(errors)


class Retriable(Exception):
    """The external system is unreachable. The runtime restarts the task with growing delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A source's record.

    Attributes:
        key, key_schema, value, value_schema: None for none; a value of None is a tombstone.
        partition: key of the source's offsets, such as `{"server": "bank"}`.
        offset: a source started with it continues after this record.
        timestamp_ms: None for now.
    """

    topic: str
    value: Any
    value_schema: Schema | None
    key: Any = None
    key_schema: Schema | None = None
    partition: Mapping[str, Any]
    offset: Offset
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    key_schema: Schema | None
    value: Any
    value_schema: Schema | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    doc: str
    default: str | None = None
    required: bool = False
    type: str = "STRING"
    importance: str = "MEDIUM"


@dataclass(slots=True)
class Progress:
    """A task's figures for status and metrics, written by the connector."""

    notes: dict[str, Any] = field(default_factory=dict)


class Configurable:
    """A class made from settings: connector, converter, transform or predicate.

    Attributes:
        settings: supported ones, as listed by the REST API; others are refused by name.
        fixed: settings of Kafka's class with the only accepted values, in lower case: the built-in behaviour.
        inert: settings of Kafka's class without effect, and why records stay the same.
    """

    settings: ClassVar[tuple[Setting, ...]] = ()
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    inert: ClassVar[Mapping[str, str]] = {}
    instead: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def serves(cls, name: str) -> bool:
        """Return whether a setting is supported, also if not listed in `settings`."""
        return any(setting.name == name for setting in cls.settings)

    @classmethod
    def unserved(cls, name: str, value: str) -> str | None:
        """Return why a setting is refused, with a remedy; None if accepted."""
        allowed = cls.fixed.get(name)
        if allowed is not None:
            return None if value.strip().lower() in allowed else f"it is not served; what is: {', '.join(allowed)}"
        if cls.serves(name) or name in cls.inert:
            return None
        return f"it is not served, and to pass it over could let out what it keeps back; {cls.instead.get(name, 'take it out')}"


class Connector(Configurable):
    """A kind of connector, with one task, as its data is ordered.

    Attributes:
        class_names: values of `connector.class`, by default module and name; the first is displayed.
        settings: without the common ones (`name`, `connector.class`, `tasks.max`, converters, errors).
    """

    class_names: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "0.1.0"

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self.config = config
        self.progress = Progress()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the values of `connector.class`; a base class's names are not inherited."""
        return vars(cls).get("class_names") or (f"{cls.__module__}.{cls.__qualname__}",)

    @classmethod
    def validate(cls, config: Config) -> dict[str, str]:
        """Return errors by setting; empty if valid. Makes no connection."""
        return {
            setting.name: f"is missing; {setting.doc}"
            for setting in cls.settings
            if setting.required and not config.get(setting.name)
        }

    async def stop(self) -> None:
        """Release all resources; also called after a failed start."""


class Boundaries:
    """A source's transaction boundaries, with `transaction.boundary=connector` (KIP-618).

    A request takes effect after a given record, or after the current `read`. After an abort the source is not read
    again: its offsets are stored all the same.
    """

    def __init__(self) -> None:
        self._of_batch: set[str] = set()
        self._of_records: dict[int, tuple[SourceRecord, set[str]]] = {}

    def commit(self, record: SourceRecord | None = None) -> None:
        """Commit after this record, or after the current `read`."""
        self._ask("commit", record)

    def abort(self, record: SourceRecord | None = None) -> None:
        """Abort after this record, or after the current `read`; committed readers then see none of it."""
        self._ask("abort", record)

    def _ask(self, what: str, record: SourceRecord | None) -> None:
        asked = self._of_batch if record is None else self._of_records.setdefault(id(record), (record, set()))[1]
        asked.add(what)

    def due(self, record: SourceRecord | None = None) -> str | None:
        """Take the request here: commit, abort, or None. Raises ValueError if both were requested."""
        if record is None:
            asked, self._of_batch = self._of_batch, set()
            self._of_records.clear()
        else:
            asked = self._of_records.pop(id(record), (record, set[str]()))[1]
        if len(asked) > 1:
            where = "same transaction" if record is None else f"same record for topic {record.topic}"
            raise ValueError(f"Connector requested both commit and abort of {where}")
        return next(iter(asked), None)


class Source(Connector):
    """Reads outside into topics: `start`, repeated `read` and `committed`, `stop`.

    Attributes:
        boundaries: of its transactions; None if it sets none.
    """

    boundaries: Boundaries | None = None

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool | None:
        """Return whether storing offsets with records gives exactly-once; None if unknown.

        `exactly.once.support=required` accepts only True.
        """
        return True if cls.position is not Source.position else None

    @classmethod
    def defines_boundaries(cls, config: Config) -> bool:
        """Return whether it can set `boundaries`."""
        return False

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        """Connect, and continue after these offsets (source partition → offset; empty at the first start).

        Raises:
            ConfigInvalid: a setting turned out wrong.
            Retriable: the external system is unreachable.
        """
        raise NotImplementedError

    async def read(self) -> Sequence[SourceRecord]:
        """Return the next records in order; empty after about half a second. Raises `Retriable`."""
        raise NotImplementedError

    def position(self, offset: Offset) -> Sequence[int | str] | None:
        """Return an offset's position in the source's order. It never decreases within a source partition.

        It prevents duplicates after a crash (see `runtime.exactly_once`). The source then guarantees the same records
        in the same order after the same offsets, and records of one position in one `read`. None: records since the
        stored offset are repeated.
        """
        return None

    @classmethod
    def offset_problem(cls, config: Config, partition: Mapping[str, Any], offset: Offset) -> str | None:
        """Return what is wrong with a user's offset; None if valid or unknown."""
        return None

    async def committed(self, offset: Offset) -> None:
        """Note that the offset is stored; the external system may discard records up to it."""


class Sink(Connector):
    """Reads topics, writes outside: `start`, repeated `write`, `stop`.

    Offsets are committed after `write` returns: records may repeat but are not lost, so writes should be idempotent.
    """

    async def start(self) -> None:
        """Connect. Errors as in `Source.start`."""
        raise NotImplementedError

    async def write(self, batch: Sequence[SinkRecord]) -> None:
        """Write all records, in order for each key.

        Raises:
            Retriable: all will be written again.
            RecordRefused: this record can never be written.
        """
        raise NotImplementedError


class RecordRefused(Exception):
    """A record can never be written. `index` is its place in the batch; earlier records are written."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index
