"""Rows of a table in memory.

Here: rows with their partition and included events; changes that can be undone; no IO.
Not here: subscribers (`feed`), topics (`table`, `global_table`).
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
"""Header of a table's record that lists the events in the row: `topic@offset`, comma-separated."""

HERE_MS: Final = 2**63 - 1
"""Time of a row changed in memory: newer than all that is read."""


class NotHere(BuswayError):
    """A row's partition is not assigned to this instance, or is not that of the handled record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrigin:
    """Partition of a row and the events in it.

    Attributes:
        partition: of the table's topic.
        included: by topic, the offset of the last included event, in the partition of the same number.
        written_ms: timestamp of the row's record, ms since 1970 in UTC; `HERE_MS` for a row changed by this instance.
    """

    partition: int
    included: Mapping[str, int]
    written_ms: int = HERE_MS

    def after(self, topic: str, offset: int) -> "RowOrigin":
        return RowOrigin(partition=self.partition, included={**self.included, topic: offset})

    def header(self) -> tuple[str, bytes]:
        return INCLUDED, ",".join(f"{topic}@{offset}" for topic, offset in sorted(self.included.items())).encode()

    @staticmethod
    def read(partition: int, header: bytes | None, written_ms: int = HERE_MS) -> "RowOrigin":
        """Parse the header of a row's record; `ValueError` for another format."""
        pairs = (pair.rpartition("@") for pair in (header or b"").decode().split(",") if pair)
        included = {topic: int(offset) for topic, _, offset in pairs}
        return RowOrigin(partition=partition, included=included, written_ms=written_ms)


class Rows(Mapping[K, V]):
    """Rows in memory, readable by all code in the process and changed by their table.

    Each partition has its own row for a key, as its log says. If several partitions have one, the newest by record
    timestamp is shown; the others appear when it is deleted or its partition is dropped.

    Views are live: copy them (`list(table.items())`) before you await between two of them.
    """

    def __init__(self) -> None:
        self._rows: dict[K, V] = {}
        self._origins: dict[K, RowOrigin] = {}
        self._behind: dict[K, dict[int, tuple[V, RowOrigin]]] = {}
        """Rows that are not shown, by key and partition; empty unless keys are in several partitions."""
        self._changes: Feed[tuple[K, V | None]] = Feed()

    __hash__ = object.__hash__

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
        return self._rows.get(key, default)

    def items(self) -> ItemsView[K, V]:
        return self._rows.items()

    def values(self) -> ValuesView[V]:
        return self._rows.values()

    def changes(self, maxsize: int | None = None) -> "AbstractContextManager[asyncio.Queue[tuple[K, V | None]]]":
        """Subscribe to changes: enters as a queue of (key, value); the value is None for a deleted row.

        A slow subscriber loses the oldest waiting changes, never the last.

        Args:
            maxsize: of the queue; 1000 unless given.

        Raises:
            ValueError: `maxsize` is not positive.
        """
        return self._changes.listening(maxsize)

    def __dir__(self) -> list[str]:
        """List the methods for handlers and pages, without those of an extension."""
        return [name for name in super().__dir__() if name.startswith("_") or name not in vars(Extension)]

    def home(self, key: K) -> RowOrigin | None:
        return self._origins.get(key)

    def _row_in(self, partition: int, key: K) -> tuple[V, RowOrigin] | tuple[None, None]:
        origin = self._origins.get(key)
        if origin is not None and origin.partition == partition:
            return self._rows[key], origin
        return self._behind.get(key, {}).get(partition, (None, None)) if self._behind else (None, None)

    def _partitions_of(self, key: K) -> set[int]:
        origin = self._origins.get(key)
        return set() if origin is None else {origin.partition, *self._behind.get(key, ())}

    def _set_row(self, key: K, value: V | None, origin: RowOrigin) -> None:
        """Set a row in the partition of `origin` and notify subscribers; None removes it."""
        shown = self._origins.get(key)
        if shown is not None and (shown.partition != origin.partition or key in self._behind):
            self._set_among(key, value, origin, shown)
            return
        if value is None:
            if shown is None:
                return
            del self._origins[key], self._rows[key]
        else:
            self._rows[key], self._origins[key] = value, origin
        self._changes.put((key, value))

    def _set_among(self, key: K, value: V | None, origin: RowOrigin, shown: RowOrigin) -> None:
        behind = self._behind.pop(key, {})
        rows = {**behind, shown.partition: (self._rows[key], shown)}
        if value is None:
            rows.pop(origin.partition, None)
        else:
            rows[origin.partition] = value, origin
        newest = max(rows, key=lambda partition: (rows[partition][1].written_ms, partition))
        now, self._origins[key] = rows.pop(newest)
        if rows:
            self._behind[key] = rows
        self._rows[key] = now
        if newest == origin.partition or newest != shown.partition:
            self._changes.put((key, now))

    def _drop(self, partitions: Collection[int]) -> None:
        for key, rows in list(self._behind.items()):
            for partition in rows.keys() & partitions:
                self._set_row(key, None, rows[partition][1])
        for key, origin in [(key, origin) for key, origin in self._origins.items() if origin.partition in partitions]:
            self._set_row(key, None, origin)

    def _forget(self) -> None:
        self._behind.clear()
        for key, origin in list(self._origins.items()):
            self._set_row(key, None, origin)


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt(Generic[K, V]):
    """Changes by one call of a handler, to be undone if it fails.

    Attributes:
        topic, partition, offset: of the record, of the last one of a batch.
        asked, flushed: whether it called `includes`, and `flush`.
        in_order: whether records of the partition are handled strictly one after another.
        before, put: rows and origins before the call, and set by it.
        written: keys of rows being sent.
        unsent: keys not yet queued in the output of an exactly_once call.
        shared: common origin of all rows that include only events of this topic.
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
    before: dict[K, tuple[V | None, RowOrigin | None]] = field(default_factory=dict)
    put: dict[K, tuple[V | None, RowOrigin]] = field(default_factory=dict)
    written: list[K] = field(default_factory=list)
    unsent: dict[K, None] = field(default_factory=dict)
    ended: bool = False
    shared: RowOrigin | None = None

    def change(self, rows: Rows[K, V], key: K, value: V | None, origin: RowOrigin | None) -> None:
        if key not in self.before:
            self.before[key] = rows._row_in(self.partition, key)
        now = self._after(origin)
        self.put[key] = value, now
        self.unsent[key] = None
        rows._set_row(key, value, now)

    def _after(self, origin: RowOrigin | None) -> RowOrigin:
        """Return the origin with the event included; shared, because a batch may change many rows."""
        if origin is not None and not origin.included.keys() <= {self.topic}:
            return origin.after(self.topic, self.offset)
        if self.shared is None:
            self.shared = RowOrigin(partition=self.partition, included={self.topic: self.offset})
        return self.shared

    def keep(self) -> None:
        self.before.clear()
        self.put.clear()
        self.unsent.clear()
        self.written.clear()

    def undo(self, rows: Rows[K, V]) -> None:
        for key, (before, was) in self.before.items():
            value, origin = self.put[key]
            now, here = rows._row_in(self.partition, key)
            if now is value and (value is None or here == origin):
                rows._set_row(key, before, origin if was is None else was)


class HeldRows(Rows[K, V]):
    """Rows of the assigned partitions; changes in others are not undone."""

    def __init__(self) -> None:
        super().__init__()
        self._held: set[int] = set()

    def _take_back(self, key: K, value: V | None, before: V | None, origin: RowOrigin) -> None:
        """Restore a row, unless it was changed meanwhile or its partition was revoked."""
        if origin.partition in self._held and self._row_in(origin.partition, key)[0] is value:
            self._set_row(key, before, origin)

    def _undo(self, attempt: Attempt[K, V]) -> None:
        if attempt.partition in self._held:
            attempt.undo(self)


def names(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts))
