"""What a table holds in memory.

What lives here: rows with the partition they belong to and the events that are in them, and an attempt that can be undone. What does not:
telling who listens to changes (`feed`), topics (`table`, `global_table`); nothing here does IO.
"""

import asyncio
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, overload

from busway.app.extending.extension import Extension
from busway.app.feed import Feed
from busway.errors import BuswayError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
INCLUDED: Final = "busway_table-included"
"""The header of a table's record that tells which events are in the row: `topic@offset`, several with commas."""

HERE_MS: Final = 2**63 - 1
"""The time of a row that was changed in memory: it is newer than all that is read."""


class NotHere(BuswayError):
    """A row belongs to a partition that this instance does not have, or that the record being handled is not from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a row belongs and what is in it.

    Attributes:
        partition: of the table's topic.
        included: for each topic the offset of the last event that went in, in the partition of that number.
        written_ms: the timestamp of the row's record, ms since 1970 in UTC; `HERE_MS` for a row that this instance has changed.
    """

    partition: int
    included: Mapping[str, int]
    written_ms: int = HERE_MS

    def after(self, topic: str, offset: int) -> "Home":
        """As it is once that event is in, too."""
        return Home(partition=self.partition, included={**self.included, topic: offset})

    def header(self) -> tuple[str, bytes]:
        """`INCLUDED` for a record of the row."""
        return INCLUDED, ",".join(f"{topic}@{offset}" for topic, offset in sorted(self.included.items())).encode()

    @staticmethod
    def read(partition: int, header: bytes | None, written_ms: int = HERE_MS) -> "Home":
        """The home of a row whose record has this header and timestamp.

        Raises:
            ValueError: the header is something else.
        """
        pairs = (pair.rpartition("@") for pair in (header or b"").decode().split(",") if pair)
        included = {topic: int(offset) for topic, _, offset in pairs}
        return Home(partition=partition, included=included, written_ms=written_ms)


class Rows(Mapping[K, V]):
    """Rows in memory, to be read by anyone in the process and changed by their table.

    Each partition has a row of its own for a key, as its log says. Where several partitions have one, the newest by its record's time is
    shown; the others appear when it is deleted or its partition has gone.

    Views are of the rows themselves: copy them (`list(table.items())`) before you await between two of them.
    """

    def __init__(self) -> None:
        self._rows: dict[K, V] = {}
        self._homes: dict[K, Home] = {}
        self._behind: dict[K, dict[int, tuple[V, Home]]] = {}
        """Rows that are not shown, by key and partition; empty unless keys are in several partitions."""
        self._changes: Feed[tuple[K, V | None]] = Feed()

    __hash__ = object.__hash__
    """A table is itself, whatever is in it."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self._rows.get(key, default)

    def items(self) -> ItemsView[K, V]:
        """Keys and values."""
        return self._rows.items()

    def values(self) -> ValuesView[V]:
        """Values."""
        return self._rows.values()

    def changes(self, maxsize: int | None = None) -> "AbstractContextManager[asyncio.Queue[tuple[K, V | None]]]":
        """Entered as a queue of (key, value) of the changes from then on; the value is None when the row has gone.

        Whoever does not keep up misses the oldest that wait, never the last.

        Args:
            maxsize: how many changes wait; 1000 unless given.

        Raises:
            ValueError: `maxsize` is no positive number.
        """
        return self._changes.listening(maxsize)

    def __dir__(self) -> list[str]:
        """The methods for handlers and pages; what an extension's methods are for is the app's."""
        return [name for name in super().__dir__() if name.startswith("_") or name not in vars(Extension)]

    def home(self, key: K) -> Home | None:
        """Where the row that is shown is, None while there is none."""
        return self._homes.get(key)

    def _row_in(self, partition: int, key: K) -> tuple[V, Home] | tuple[None, None]:
        """The row of a key in one partition, shown or not; (None, None) while there is none."""
        home = self._homes.get(key)
        if home is not None and home.partition == partition:
            return self._rows[key], home
        return self._behind.get(key, {}).get(partition, (None, None)) if self._behind else (None, None)

    def _partitions_of(self, key: K) -> set[int]:
        """The partitions that have a row of this key."""
        home = self._homes.get(key)
        return set() if home is None else {home.partition, *self._behind.get(key, ())}

    def _set_row(self, key: K, value: V | None, home: Home) -> None:
        """Make the row of a key in the partition of `home` so, tell the listeners; None as the value takes it away."""
        shown = self._homes.get(key)
        if shown is not None and (shown.partition != home.partition or key in self._behind):
            self._set_among(key, value, home, shown)
            return
        if value is None:
            if shown is None:
                return
            del self._homes[key], self._rows[key]
        else:
            self._rows[key], self._homes[key] = value, home
        self._changes.put((key, value))

    def _set_among(self, key: K, value: V | None, home: Home, shown: Home) -> None:
        """`set_row` where another partition has a row of this key."""
        behind = self._behind.pop(key, {})
        rows = {**behind, shown.partition: (self._rows[key], shown)}
        if value is None:
            rows.pop(home.partition, None)
        else:
            rows[home.partition] = value, home
        newest = max(rows, key=lambda partition: (rows[partition][1].written_ms, partition))
        now, self._homes[key] = rows.pop(newest)
        if rows:
            self._behind[key] = rows
        self._rows[key] = now
        if newest == home.partition or newest != shown.partition:
            self._changes.put((key, now))

    def _drop(self, partitions: Collection[int]) -> None:
        """Forget the rows of partitions."""
        for key, rows in list(self._behind.items()):
            for partition in rows.keys() & partitions:
                self._set_row(key, None, rows[partition][1])
        for key, home in [(key, home) for key, home in self._homes.items() if home.partition in partitions]:
            self._set_row(key, None, home)

    def _forget(self) -> None:
        """Forget everything."""
        self._behind.clear()
        for key, home in list(self._homes.items()):
            self._set_row(key, None, home)


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt(Generic[K, V]):
    """What one call of a handler changed, so that it can be undone when the call fails.

    Attributes:
        topic, partition, offset: of the record, of the last one of a batch.
        key: of the record.
        route: the handler's name.
        batch: whether it was given many records.
        asked, flushed: whether it has asked what is in a row, and flushed.
        in_order: whether the records of the partition are handled strictly one after the other.
        before: rows and homes as they were.
        put: what the call made of them.
        written: keys of those that are on their way to the topic.
        unsent: keys of those that have no place yet among what an exactly_once call leaves behind.
        ended: the call has returned or failed.
        shared: the home of all rows whose only events are the topic's.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    route: str = ""
    batch: bool = False
    asked: bool = False
    flushed: bool = False
    in_order: bool = False
    before: dict[K, tuple[V | None, Home | None]] = field(default_factory=dict)
    put: dict[K, tuple[V | None, Home]] = field(default_factory=dict)
    written: list[K] = field(default_factory=list)
    unsent: dict[K, None] = field(default_factory=dict)
    ended: bool = False
    shared: Home | None = None

    def change(self, rows: Rows[K, V], key: K, value: V | None, home: Home | None) -> None:
        """Make the row, which is at home where the record came from, so, and remember how it was."""
        if key not in self.before:
            self.before[key] = rows._row_in(self.partition, key)
        now = self._after(home)
        self.put[key] = value, now
        self.unsent[key] = None
        rows._set_row(key, value, now)

    def _after(self, home: Home | None) -> Home:
        """The row's home once the event is in, too; a batch may change many rows, so there is one for all of them where it can be."""
        if home is not None and not home.included.keys() <= {self.topic}:
            return home.after(self.topic, self.offset)
        if self.shared is None:
            self.shared = Home(partition=self.partition, included={self.topic: self.offset})
        return self.shared

    def keep(self) -> None:
        """What was put until now is written, so it is not undone any more."""
        self.before.clear()
        self.put.clear()
        self.unsent.clear()
        self.written.clear()

    def undo(self, rows: Rows[K, V]) -> None:
        """Make the rows what they were, but for those that somebody else has changed meanwhile."""
        for key, (before, was) in self.before.items():
            value, home = self.put[key]
            now, here = rows._row_in(self.partition, key)
            if now is value and (value is None or here == home):
                rows._set_row(key, before, home if was is None else was)


class HeldRows(Rows[K, V]):
    """Keep the rows of the partitions that this instance holds.

    What was put into a partition that has gone is not taken back.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: set[int] = set()

    def _take_back(self, key: K, value: V | None, before: V | None, home: Home) -> None:
        """Make a row what it was before `value`, unless it was changed meanwhile, or has gone with its partition."""
        if home.partition in self._held and self._row_in(home.partition, key)[0] is value:
            self._set_row(key, before, home)

    def _undo(self, attempt: Attempt[K, V]) -> None:
        """Undo what a call has changed, unless that has gone with its partition."""
        if attempt.partition in self._held:
            attempt.undo(self)


def names(found: Iterable[str]) -> str:
    """Names as messages show them."""
    return ", ".join(sorted(found))
