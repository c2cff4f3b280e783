"""Messages of the log → records.

Here: transactions, records' offsets, skipping those before the stored offset. Pure: times are passed in.
Not here: decoding (`pgoutput`), forms of records (`records`), IO.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from busway_connect.connector import SourceRecord
from busway_connect.postgres import pgoutput
from busway_connect.postgres.positions import InStream
from busway_connect.postgres.records import HEARTBEAT, HEARTBEAT_KEY, Layout, Origin, Part
from busway_connect.postgres.settings import Settings

Headers = tuple[tuple[str, bytes | None], ...]
_OPERATIONS: Final = {
    pgoutput.Insert: "c",
    pgoutput.Update: "u",
    pgoutput.Delete: "d",
    pgoutput.Truncate: "t",
}
_Change = pgoutput.Insert | pgoutput.Update | pgoutput.Delete | pgoutput.Truncate


class OutOfOrder(Exception):
    """A change outside a transaction, or of an undescribed table."""


class Stream:
    """A reading of the log.

    Args:
        position: end of the previous reading; earlier records are skipped.
        fresh: nothing was read before, so `source.sequence` begins with null, like Debezium's.
        headers: of every record.
    """

    def __init__(self, position: InStream, settings: Settings, headers: Headers, *, fresh: bool) -> None:
        self._settings = settings
        self._headers = headers
        self._partition: Mapping[str, str] = {"server": settings.prefix}
        self._behind: InStream | None = position
        self._generation = position.generation
        self._commit_lsn = position.commit_lsn
        self._commit_shown = None if fresh else position.commit_lsn
        self.offered_lsn = position.commit_lsn
        """Position of the newest returned offset; commits after it are of uncaptured tables."""
        self._begin: pgoutput.Begin | None = None
        self._skipping = False
        self._origin: pgoutput.Origin | None = None
        self._lsn, self._events = 0, 0
        self._held: SourceRecord | None = None
        self.layouts: dict[int, Layout | None] = {}
        """By table oid; None for an uncaptured table."""

    @property
    def between_transactions(self) -> bool:
        return self._begin is None

    @property
    def commit_lsn(self) -> int:
        return self._commit_lsn

    def feed(self, lsn: int, message: pgoutput.Any, now_ns: int) -> list[SourceRecord]:
        """Return the records of a message; most kinds have none.

        Args:
            lsn: of the message, from the server's header.

        Raises:
            OutOfOrder: a message in the wrong place.
            StaleType, Unreadable: as `Layout.row`; the message may be fed again.
        """
        if isinstance(message, _Change):
            return self._change(lsn, message, now_ns)
        if isinstance(message, pgoutput.Begin):
            self._begin, self._origin = message, None
            self._lsn, self._events = 0, 0
            self._skipping = self._behind is not None and self._behind.has_whole(message.final_lsn)
        elif isinstance(message, pgoutput.Commit):
            return self._commit(message)
        elif isinstance(message, pgoutput.Origin):
            self._origin = message
        return []

    def _commit(self, message: pgoutput.Commit) -> list[SourceRecord]:
        if self._begin is None:
            raise OutOfOrder("a commit without a transaction")
        self._begin = None
        if self._skipping:
            return []
        # The first incomplete transaction contains all that is needed.
        self._behind = None
        self._commit_lsn = self._commit_shown = message.end_lsn
        held, self._held = self._held, None
        if held is None:
            return []
        self.offered_lsn = message.end_lsn
        whole = {**held.offset, "lsn_proc": message.end_lsn, "lsn_commit": message.end_lsn}
        return [replace(held, offset=whole)]

    def _change(self, lsn: int, message: _Change, now_ns: int) -> list[SourceRecord]:
        begin = self._begin
        if begin is None:
            raise OutOfOrder(f"a change at {lsn} outside a transaction")
        events = self._events + 1 if lsn == self._lsn else 1
        done: int | None = None
        if not self._skipping:
            done = self._behind.handed_over(begin.final_lsn, lsn, events) if self._behind is not None else 0
        parts: list[tuple[Layout, Part]] = []
        if done is not None and _OPERATIONS[type(message)] not in self._settings.skipped_operations:
            parts = self._parts(lsn, message, begin, now_ns)
        self._lsn, self._events = lsn, events
        records = [
            self._record(layout, part, index, len(parts), begin)
            for index, (layout, part) in enumerate(parts, 1)
            if index > (done or 0)
        ]
        if not records:
            return []
        # The last record waits for the commit, so that its offset covers the whole transaction.
        held, self._held = self._held, records.pop()
        return records if held is None else [held, *records]

    def _layout(self, relation: int) -> Layout | None:
        try:
            return self.layouts[relation]
        except KeyError:
            raise OutOfOrder(f"a change of the table with oid {relation}, which was not described") from None

    def _parts(self, lsn: int, message: _Change, begin: pgoutput.Begin, now_ns: int) -> list[tuple[Layout, Part]]:
        origin = Origin(
            at_us=begin.commit_us,
            snapshot="false",
            lsn=lsn,
            xid=begin.xid,
            commit_lsn=self._commit_shown,
            origin=self._origin.name if self._origin is not None else None,
            origin_lsn=self._origin.commit_lsn if self._origin is not None else None,
        )
        if isinstance(message, pgoutput.Truncate):
            layouts = [self._layout(relation) for relation in message.relations]
            return [
                (layout, part) for layout in layouts if layout is not None for part in layout.truncated(origin, now_ns)
            ]
        layout = self._layout(message.relation)
        if layout is None:
            return []
        if isinstance(message, pgoutput.Insert):
            records = layout.created(message.new, origin, now_ns)
        elif isinstance(message, pgoutput.Update):
            records = layout.updated(message.old, message.new, origin, now_ns)
        else:
            records = layout.deleted(message.old, origin, now_ns)
        return [(layout, part) for part in records]

    def _record(self, layout: Layout, part: Part, index: int, count: int, begin: pgoutput.Begin) -> SourceRecord:
        position = InStream(
            generation=self._generation,
            commit_lsn=self._commit_lsn,
            transaction_lsn=begin.final_lsn,
            lsn=self._lsn,
            events=self._events,
            parts=index if index < count else 0,
            xid=begin.xid,
            at_us=begin.commit_us,
        )
        return SourceRecord(
            topic=layout.topic,
            key=part.key,
            key_schema=layout.key_schema if part.key is not None else None,
            value=part.value,
            value_schema=layout.schema if part.value is not None else None,
            partition=self._partition,
            offset=position.offset(),
            headers=(*part.headers, *self._headers),
        )

    def heartbeat(self, lsn: int, now_ns: int) -> SourceRecord:
        """Return a record with only an offset; everything before `lsn` was read, without captured changes."""
        self._commit_lsn = self.offered_lsn = max(self._commit_lsn, lsn)
        return SourceRecord(
            topic=f"{self._settings.heartbeat_topics_prefix}.{self._settings.prefix}",
            key={"serverName": self._settings.prefix},
            key_schema=HEARTBEAT_KEY,
            value={"ts_ms": now_ns // 1_000_000},
            value_schema=HEARTBEAT,
            partition=self._partition,
            offset=InStream(generation=self._generation, commit_lsn=self._commit_lsn).offset(),
        )
