"""Messages of PostgreSQL's plugin `pgoutput`, protocol version 1.

Here: a frozen class for each message, and `decode`.
Not here: their meaning (`stream`), values (`values`), IO.

Values stay text of PostgreSQL's output functions; None is NULL, `UNCHANGED` an untouched TOASTed value. Source:
PostgreSQL 15, "Logical Replication Message Formats".
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970: the server's epoch."""
MAX_COLUMNS: Final = 1664
"""PostgreSQL's limit for a tuple (MaxTupleAttributeNumber)."""


class Malformed(ValueError):
    """Not a message of pgoutput; the text has place and content."""


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


UNCHANGED: Final = _Unchanged.UNCHANGED
Cell: TypeAlias = str | bytes | Literal[_Unchanged.UNCHANGED] | None
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start of a transaction. `final_lsn` is its commit record's; `commit_us` is microseconds since 1970."""

    final_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """End of a transaction; `end_lsn` is the first byte after the commit record."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The transaction was first committed on another server."""

    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationColumn:
    """A column in the log; `key`: part of the replica identity."""

    name: str
    key: bool
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table's form from here on, sent before its first change and after each change of its definition."""

    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    relation: int
    new: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An updated row. `old` is None if no identity column changed; `old_is_key`: it has only these columns."""

    relation: int
    old: Row | None
    old_is_key: bool
    new: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A deleted row; `old` and `old_is_key` as in `Update`."""

    relation: int
    old: Row
    old_is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Any: TypeAlias = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | Message

_BEGIN: Final = struct.Struct("!QqI")
_COMMIT: Final = struct.Struct("!BQQq")
_COLUMN: Final = struct.Struct("!Ii")
_U16: Final = struct.Struct("!H")
_U32: Final = struct.Struct("!I")
_U64: Final = struct.Struct("!Q")


class _Reader:
    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def u16(self) -> int:
        (value,) = _U16.unpack_from(self.data, self.at)
        self.at += 2
        return int(value)

    def u32(self) -> int:
        (value,) = _U32.unpack_from(self.data, self.at)
        self.at += 4
        return int(value)

    def u64(self) -> int:
        (value,) = _U64.unpack_from(self.data, self.at)
        self.at += 8
        return int(value)

    def text(self) -> str:
        end = self.data.index(0, self.at)
        value = self.data[self.at : end].decode()
        self.at = end + 1
        return value

    def content(self) -> bytes:
        size = self.u32()
        end = self.at + size
        if end > len(self.data):
            raise Malformed(f"{size} bytes announced at {self.at}, {len(self.data) - self.at} are there")
        value = self.data[self.at : end]
        self.at = end
        return value

    def row(self) -> Row:
        cells: list[Cell] = []
        data = self.data
        for _ in range(self.u16()):
            kind = data[self.at]
            self.at += 1
            if kind == 0x74:  # t: text
                cells.append(self.content().decode())
            elif kind == 0x6E:  # n: NULL
                cells.append(None)
            elif kind == 0x75:  # u: unchanged TOAST
                cells.append(UNCHANGED)
            elif kind == 0x62:  # b: binary, only on request
                cells.append(self.content())
            else:
                raise Malformed(f"no kind of value is {chr(kind)!r} at {self.at - 1}")
        return tuple(cells)

    def mark(self, allowed: str) -> str:
        mark = chr(self.byte())
        if mark not in allowed:
            raise Malformed(f"{mark!r} at {self.at - 1} where one of {allowed!r} belongs")
        return mark


def _begin(reader: _Reader) -> Begin:
    final_lsn, at_us, xid = _BEGIN.unpack_from(reader.data, reader.at)
    reader.at += _BEGIN.size
    return Begin(final_lsn=final_lsn, commit_us=at_us + POSTGRES_EPOCH_US, xid=xid)


def _commit(reader: _Reader) -> Commit:
    _, commit_lsn, end_lsn, at_us = _COMMIT.unpack_from(reader.data, reader.at)
    reader.at += _COMMIT.size
    return Commit(commit_lsn=commit_lsn, end_lsn=end_lsn, commit_us=at_us + POSTGRES_EPOCH_US)


def _relation(reader: _Reader) -> Relation:
    oid, schema, name, identity = reader.u32(), reader.text(), reader.text(), chr(reader.byte())
    count = reader.u16()
    if count > MAX_COLUMNS:
        raise Malformed(f"{count} columns announced; a table has at most {MAX_COLUMNS}")
    columns = []
    for _ in range(count):
        flags, column = reader.byte(), reader.text()
        type_oid, modifier = _COLUMN.unpack_from(reader.data, reader.at)
        reader.at += _COLUMN.size
        columns.append(RelationColumn(name=column, key=bool(flags & 1), type_oid=type_oid, type_modifier=modifier))
    # pg_catalog is sent as an empty name.
    return Relation(
        oid=oid, schema=schema or "pg_catalog", name=name, replica_identity=identity, columns=tuple(columns)
    )


def _insert(reader: _Reader) -> Insert:
    relation = reader.u32()
    reader.mark("N")
    return Insert(relation=relation, new=reader.row())


def _update(reader: _Reader) -> Update:
    relation = reader.u32()
    mark = reader.mark("KON")
    old = None
    if mark != "N":
        old = reader.row()
        reader.mark("N")
    return Update(relation=relation, old=old, old_is_key=mark == "K", new=reader.row())


def _delete(reader: _Reader) -> Delete:
    relation = reader.u32()
    mark = reader.mark("KO")
    return Delete(relation=relation, old=reader.row(), old_is_key=mark == "K")


def _truncate(reader: _Reader) -> Truncate:
    count, options = reader.u32(), reader.byte()
    if count * 4 > len(reader.data) - reader.at:
        raise Malformed(f"{count} tables announced, {len(reader.data) - reader.at} bytes are there")
    relations = tuple(reader.u32() for _ in range(count))
    return Truncate(relations=relations, cascade=bool(options & 1), restart_identity=bool(options & 2))


def _message(reader: _Reader) -> Message:
    flags, lsn, prefix = reader.byte(), reader.u64(), reader.text()
    return Message(transactional=bool(flags & 1), lsn=lsn, prefix=prefix, content=reader.content())


_DECODERS: Final[dict[int, Callable[[_Reader], Any]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): lambda reader: Origin(commit_lsn=reader.u64(), name=reader.text()),
    ord("R"): _relation,
    ord("Y"): lambda reader: Type(oid=reader.u32(), schema=reader.text() or "pg_catalog", name=reader.text()),
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}


def decode(data: bytes) -> Any:
    """Decode a message; raises `Malformed`, also for bytes left over."""
    if not data:
        raise Malformed("an empty message")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        raise Malformed(f"no message of protocol version 1 begins with {chr(data[0])!r}")
    reader = _Reader(data)
    try:
        message = decoder(reader)
    except Malformed as problem:
        raise Malformed(f"{chr(data[0])!r} message: {problem}") from None
    except (struct.error, IndexError, ValueError) as problem:  # truncated, or not UTF-8
        raise Malformed(f"{chr(data[0])!r} message of {len(data)} bytes: {problem}") from problem
    if reader.at != len(data):
        raise Malformed(f"{chr(data[0])!r} message: {len(data) - reader.at} bytes too many")
    return message
