"""What a connector is: a `Source` that reads records from somewhere, or a `Sink` that writes them there.

What lives here: the interface between the runtime and its connectors. What does not: the runtime (`worker`, `rest`), any connector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from busway_connect.schema import Schema

Offset = Mapping[str, Any]
"""How far a source has read, as JSON: `{"lsn": 123, …}`; only the source reads meaning into it."""
Config = Mapping[str, str]
"""A connector's settings, as the REST API takes them: text by name."""


class ConfigInvalid(ValueError):
    """A setting is missing or cannot be; `errors` holds for each setting's name what is wrong, as the validate call tells it."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in errors.items()))
        self.errors = dict(errors)


class Retriable(Exception):
    """The outside cannot be reached right now; the runtime waits, growing longer each time, and starts the task again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """What a source hands over.

    Attributes:
        topic: where it goes.
        key, key_schema, value, value_schema: None for none; a value of None is a tombstone.
        partition: what the source's offsets are kept by, such as `{"server": "bank"}`.
        offset: the source goes on behind this record when it is started with this offset.
        headers: names and bytes.
        timestamp_ms: of the record; None for now.
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
    """What a sink is given: a record of a topic, converted."""

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
    """A setting that a connector knows, as the validate call and a console show it."""

    name: str
    doc: str
    default: str | None = None
    required: bool = False
    type: str = "STRING"
    importance: str = "MEDIUM"


@dataclass(slots=True)
class Progress:
    """What a task tells of itself, for status and metrics; the connector writes, the runtime reads."""

    notes: dict[str, Any] = field(default_factory=dict)


class Configurable:
    """What is made of settings: a connector, converter, transform or predicate. A setting that it does not serve is refused by its name.

    Attributes:
        settings: that it serves, as the REST API lists them.
        fixed: settings of Kafka's class that are served with some values only, in lower case, as these say what is done here anyway.
        inert: settings of Kafka's class that are taken and mean nothing here, and why nothing else goes out for that.
        instead: what to do in place of a setting that is refused.
    """

    settings: ClassVar[tuple[Setting, ...]] = ()
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    inert: ClassVar[Mapping[str, str]] = {}
    instead: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def serves(cls, name: str) -> bool:
        """Whether a setting means something to it; for names that no list can hold, more than `settings`."""
        return any(setting.name == name for setting in cls.settings)

    @classmethod
    def unserved(cls, name: str, value: str) -> str | None:
        """Why a setting is refused, with the remedy; None if it is not."""
        allowed = cls.fixed.get(name)
        if allowed is not None:
            return None if value.strip().lower() in allowed else f"it is not served; what is: {', '.join(allowed)}"
        if cls.serves(name) or name in cls.inert:
            return None
        return f"it is not served, and to pass it over could let out what it keeps back; {cls.instead.get(name, 'take it out')}"


class Connector(Configurable):
    """A kind of connector. One task for each connector: that is what its data has an order for.

    Attributes:
        class_names: by which `connector.class` it is asked for, if not by its module and name; the first is shown.
        settings: its own, without those that every connector has (`name`, `connector.class`, `tasks.max`, converters, errors).
        version: shown by the REST API.
    """

    class_names: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "0.1.0"

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self.config = config
        self.progress = Progress()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """By which it is asked for; those of a class that it is derived from are not its own."""
        return vars(cls).get("class_names") or (f"{cls.__module__}.{cls.__qualname__}",)

    @classmethod
    def validate(cls, config: Config) -> dict[str, str]:
        """What is wrong with a config, by setting; empty if nothing is. Makes no connection."""
        return {
            setting.name: f"is missing; {setting.doc}"
            for setting in cls.settings
            if setting.required and not config.get(setting.name)
        }

    async def stop(self) -> None:
        """Let go of all it holds; also after a failed start."""


class Boundaries:
    """Where a source ends its transactions, with `transaction.boundary=connector` (KIP-618). What is asked for holds when the records of
    the `read` under way are sent, or behind a record of it. After an abort the source is not read again: its offsets are stored all
    the same."""

    def __init__(self) -> None:
        self._of_batch: set[str] = set()
        self._of_records: dict[int, tuple[SourceRecord, set[str]]] = {}

    def commit(self, record: SourceRecord | None = None) -> None:
        """Commit behind this record, or behind all of this `read`."""
        self._ask("commit", record)

    def abort(self, record: SourceRecord | None = None) -> None:
        """Abort behind this record, or behind all of this `read`: readers of committed records see none of the transaction."""
        self._ask("abort", record)

    def _ask(self, what: str, record: SourceRecord | None) -> None:
        asked = self._of_batch if record is None else self._of_records.setdefault(id(record), (record, set()))[1]
        asked.add(what)

    def due(self, record: SourceRecord | None = None) -> str | None:
        """What was asked for behind this record, or behind the `read`: commit, abort, or None; asked by the runtime, once.

        Raises:
            ValueError: both.
        """
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
    """Reads from outside, writes to topics: `start`, then `read` again and again, with `committed` in between, at the end `stop`.

    Attributes:
        boundaries: of its transactions, while they are its own to set; None else.
    """

    boundaries: Boundaries | None = None

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool | None:
        """Whether each record comes once when its offset is stored with it; None if the connector does not say.
        `exactly.once.support=required` takes True alone."""
        return True if cls.position is not Source.position else None

    @classmethod
    def defines_boundaries(cls, config: Config) -> bool:
        """Whether it can set the boundaries of its transactions (`boundaries`)."""
        return False

    async def start(self, offsets: Sequence[tuple[Mapping[str, Any], Offset]]) -> None:
        """Connect, and go on behind these offsets (source partition → offset); none at the first start.

        Raises:
            ConfigInvalid: a setting turned out wrong.
            Retriable: the outside cannot be reached right now.
        """
        raise NotImplementedError

    async def read(self) -> Sequence[SourceRecord]:
        """The next records, in order; waits up to about half a second for some, then returns none.

        Raises:
            Retriable: the outside went away.
        """
        raise NotImplementedError

    def position(self, offset: Offset) -> Sequence[int | str] | None:
        """Where an offset lies in the order in which the source hands its records over; it never falls within a source partition.

        With it nothing is doubled after a crash either (see `runtime.exactly_once`). The source then promises that it hands the same
        records over again, in the same order, when it is started with the same offsets, and that records which share a position come
        in one `read`. None: it cannot promise that, and what was read since the stored offset comes again.
        """
        return None

    @classmethod
    def offset_problem(cls, config: Config, partition: Mapping[str, Any], offset: Offset) -> str | None:
        """What is wrong with an offset that a person wants stored; None if nothing is, or nothing can be said."""
        return None

    async def committed(self, offset: Offset) -> None:
        """Every record up to the one with this offset is acknowledged by the bus, and the offset is stored: the outside may forget it."""


class Sink(Connector):
    """Reads topics, writes to the outside: `start`, then `write` again and again, at the end `stop`.

    The group's offsets are committed when `write` has returned, so that a record comes again rather than never; a sink that must not
    write twice makes its writes idempotent.
    """

    async def start(self) -> None:
        """Connect.

        Raises:
            ConfigInvalid, Retriable: as `Source.start`.
        """
        raise NotImplementedError

    async def write(self, batch: Sequence[SinkRecord]) -> None:
        """Write all of it, in order for each key.

        Raises:
            Retriable: nothing is wrong with the records; they are written again.
            RecordRefused: this record can never be written.
        """
        raise NotImplementedError


class RecordRefused(Exception):
    """A record can never be written; `index` is its place in the batch. What came before it is written."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index
