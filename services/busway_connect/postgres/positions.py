"""A connector's position: in the snapshot, or in the log.

Here: both kinds, stored offsets, and their order.
Not here: IO.

Offsets have Debezium's names (`lsn`, `lsn_commit`, `lsn_proc`, `txId`, `ts_usec`, `snapshot`, …) and Busway's:
`generation`, raised by each new snapshot; `lsn_transaction`, the commit record of the current transaction;
`snapshot_table`, `snapshot_key` and `snapshot_order`, the last row of the snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway_connect.connector import Offset

_SNAPSHOT: Final = 0
_STREAM: Final = 1


def lsn_text(lsn: int) -> str:
    """Format like PostgreSQL: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class InSnapshot:
    """A row of a snapshot.

    Attributes:
        lsn: beginning of the stream after it.
        table, key: the last row returned: `schema.table` and the texts of its key; no key for a table without one.
        order: the key as numbers and texts that Python orders like the server; None if impossible.
    """

    generation: int
    lsn: int
    xid: int
    at_us: int
    table: str | None = None
    key: tuple[str, ...] | None = None
    order: tuple[int | str, ...] | None = None
    last: bool = False

    def offset(self) -> Offset:
        stored: dict[str, Any] = {
            "snapshot": "INITIAL",
            "snapshot_completed": self.last,
            "last_snapshot_record": self.last,
            "generation": self.generation,
            "lsn": self.lsn,
            "txId": self.xid,
            "ts_usec": self.at_us,
        }
        if self.table is not None:
            stored["snapshot_table"] = self.table
        if self.key is not None:
            stored["snapshot_key"] = list(self.key)
        if self.order is not None:
            stored["snapshot_order"] = list(self.order)
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class InStream:
    """A record of the log.

    Attributes:
        generation: of the snapshot before.
        commit_lsn: end of the last complete transaction; the server may discard the log before it.
        transaction_lsn: commit record of the current transaction; 0 for none.
        lsn, events: of its last change, and that change's number at this LSN, from 1.
        parts: records returned of that change, if it has several; 0 for all.
    """

    generation: int
    commit_lsn: int
    transaction_lsn: int = 0
    lsn: int = 0
    events: int = 0
    parts: int = 0
    xid: int | None = None
    at_us: int | None = None

    def offset(self) -> Offset:
        stored: dict[str, Any] = {
            "generation": self.generation,
            "lsn_proc": self.commit_lsn,
            "lsn_commit": self.commit_lsn,
            "lsn": self.lsn or self.commit_lsn,
        }
        if self.transaction_lsn:
            stored |= {"lsn_transaction": self.transaction_lsn, "lsn_events_processed": self.events}
        if self.parts:
            stored["lsn_event_records"] = self.parts
        if self.xid is not None:
            stored["txId"] = self.xid
        if self.at_us is not None:
            stored["ts_usec"] = self.at_us
        return stored

    def has_whole(self, transaction_lsn: int) -> bool:
        return transaction_lsn < self.commit_lsn

    def handed_over(self, transaction_lsn: int, lsn: int, events: int) -> int | None:
        """Return the number of records returned of this change; None for all."""
        change, here = (transaction_lsn, lsn, events), (self.transaction_lsn, self.lsn, self.events)
        if change == here:
            return self.parts or None
        return 0 if change > here else None


def read_offset(offset: Mapping[str, Any]) -> InSnapshot | InStream:
    """Parse a stored offset; raises ValueError. Debezium's own repeats the current transaction from its beginning."""
    try:
        generation = int(offset.get("generation", 0))
        if offset.get("snapshot"):
            return _in_snapshot(offset, generation)
        commit_lsn = int(offset.get("lsn_commit", offset.get("lsn_proc", offset["lsn"])))
        if "lsn_transaction" not in offset:
            return InStream(generation=generation, commit_lsn=commit_lsn)
        return InStream(
            generation=generation,
            commit_lsn=commit_lsn,
            transaction_lsn=int(offset["lsn_transaction"]),
            lsn=int(offset["lsn"]),
            events=int(offset["lsn_events_processed"]),
            parts=int(offset.get("lsn_event_records", 0)),
            xid=offset.get("txId"),
            at_us=offset.get("ts_usec"),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"the stored offset {dict(offset)!r} is no position in PostgreSQL's log") from problem


def _in_snapshot(offset: Mapping[str, Any], generation: int) -> InSnapshot:
    key, order = offset.get("snapshot_key"), offset.get("snapshot_order")
    return InSnapshot(
        generation=generation,
        lsn=int(offset["lsn"]),
        xid=int(offset.get("txId") or 0),
        at_us=int(offset.get("ts_usec") or 0),
        table=offset.get("snapshot_table"),
        key=None if key is None else tuple(str(part) for part in key),
        order=None if order is None else tuple(order),
        last=bool(offset.get("snapshot_completed") or offset.get("last_snapshot_record")),
    )


def order_of(offset: Offset) -> list[int | str] | None:
    """Return an offset's order within a connector. None for a row of a table without key order."""
    position = read_offset(offset)
    if isinstance(position, InStream):
        here = [position.transaction_lsn or position.commit_lsn, position.lsn, position.events, position.parts or 2**31]
        return [position.generation, _STREAM, *here]
    if position.table is None or position.order is None:
        return None
    return [position.generation, _SNAPSHOT, position.table, *position.order]
