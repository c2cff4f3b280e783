"""What a service left behind, as it is read at the end of a run.

Here: the operation, and the text of the records that the service writes.
Not here: the service (`service_workloads`), any judgement (`service_checks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from tests.simulation.history import Operation, Partition, Seen


class Row(NamedTuple):
    """A row of the service's table: how many records went into it, the offset of the last, and a checksum over all their offsets."""

    events: int = 0
    last: int = -1
    fold: int = 0

    def after(self, offset: int) -> "Row":
        """The row with one more record in it."""
        return Row(self.events + 1, offset, crc32(f"{self.fold}/{offset}".encode()))


class Copied(NamedTuple):
    """What the service makes of a record: which one it was, and the row as its handler left it."""

    process: str
    source: Partition
    offset: int
    row: Row | None

    def text(self) -> bytes:
        """As it is written."""
        row = "" if self.row is None else "/".join(map(str, self.row))
        return f"{self.process}|{self.source.topic}|{self.source.number}|{self.offset}|{row}".encode()

    @classmethod
    def read(cls, text: bytes) -> "Copied":
        """What `text` wrote."""
        process, topic, number, offset, row = text.decode().split("|")
        kept = Row(*map(int, row.split("/"))) if row else None
        return cls(process, Partition(topic, int(number)), int(offset), kept)


def row_key(partition: int, value: bytes | None) -> str:
    """The row that a record of this value goes into; no other partition's records go there."""
    return f"{partition}.{crc32(value or b'') % 2}"


def partition_of_row(key: str) -> int:
    """Whose records go into it."""
    return int(key.partition(".")[0])


def is_poison(value: bytes | None) -> bool:
    """Whether no handler can handle this record."""
    return crc32(value or b"") % 7 == 0


@dataclass(slots=True, kw_only=True)
class ServiceRead(Operation):
    """All that a service has read and written, read as committed, when nothing goes on any more.

    Attributes:
        sources: what it has read, by partition.
        copies: what it has written, by partition.
        letters: the records that it could not handle.
        rows: the records of its table's topic, by partition.
        live: the rows of its table, as instances have them in memory, each with the instance.
        ordered: whether records of a partition are handled one after the other, and the table is used.
    """

    ordered: bool
    sources: Mapping[Partition, Sequence[Seen]] = field(default_factory=dict)
    copies: Mapping[Partition, Sequence[Seen]] = field(default_factory=dict)
    letters: Sequence[tuple[Partition, int]] = ()
    rows: Mapping[Partition, Sequence[Seen]] = field(default_factory=dict)
    live: Sequence[tuple[str, str, Row]] = ()

    def describe(self) -> str:
        """How much of what."""
        read, written = (sum(map(len, by_place.values())) for by_place in (self.sources, self.copies))
        return f"the service has read {read} records, written {written}, put {len(self.letters)} aside"
