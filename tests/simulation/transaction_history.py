"""What transactional clients asked and were answered.

Here: the operations.
Not here: the recorder and all other operations (`history`), any judgement (`transaction_checks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.history import Operation, Outcome, Partition, Seen, Send


class Source(NamedTuple):
    """The record that another was made of."""

    partition: Partition
    offset: int


@dataclass(slots=True, kw_only=True)
class Transaction(Operation):
    """A transaction: OK is committed, FAIL aborted; INFO is unknown where a commit was asked for, aborted where none was.

    Attributes:
        values: what was handed over in it, in this order; keys that were deleted are not among it.
        sends: all of it, as it was sent.
        sources: of the values that were made of others.
        group: whose `offsets` it commits.
        offsets: of the next record to read.
        asked: the place in the order of events at which its commit was asked for, None before.
        older: whether its client adds partitions by itself, and keeps its epoch over an end (`transaction.version` 0 and 1).
    """

    transactional_id: str
    values: list[tuple[Partition, bytes]] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    sources: dict[bytes, Source] = field(default_factory=dict)
    group: str = ""
    offsets: dict[Partition, int] = field(default_factory=dict)
    asked: int | None = None
    older: bool = False

    @property
    def may_count(self) -> bool:
        """Whether it may be committed."""
        return self.asked is not None and self.outcome is not Outcome.FAIL

    def describe(self) -> str:
        """Whose it is and what is in it."""
        offsets = ", ".join(f"{partition} {offset}" for partition, offset in self.offsets.items())
        places = ", ".join(sorted({str(partition) for partition, _ in self.values}))
        return f"transaction of {self.transactional_id}: {len(self.values)} records to {places or 'nowhere'}" + (
            f", offsets {offsets}" if offsets else ""
        )


@dataclass(slots=True, kw_only=True)
class CommittedPoll(Operation):
    """Records handed to a reader of committed ones, in order; one in a group may be given records again."""

    records: Sequence[Seen] = ()
    group: str | None = None

    def describe(self) -> str:
        """How much."""
        places = ", ".join(f"{record.partition}@{record.offset}" for record in self.records[:5])
        return f"poll committed {places or 'nothing'}" + (" …" if len(self.records) > 5 else "")


@dataclass(slots=True, kw_only=True)
class CommittedRead(Operation):
    """All committed records of a partition at the end of the run, when nothing is open any more; `reading` is the same for all partitions
    that were read in one go."""

    partition: Partition
    reading: str
    records: Sequence[Seen] = ()

    def describe(self) -> str:
        """How much of what."""
        return f"read {len(self.records)} committed records of {self.partition}"


@dataclass(slots=True, kw_only=True)
class GroupOffset(Operation):
    """A look at an offset that transactions commit; `last` at the end of the run, when nothing is open any more.

    Attributes:
        stable: whether it waits for a transaction that has ended and has no marker yet (KIP-447): who reads what is not committed does not.
    """

    group: str
    partition: Partition
    offset: int | None = None
    last: bool = False
    stable: bool = True

    def describe(self) -> str:
        """What is committed."""
        return f"offset of {self.group} {self.partition} is {self.offset}"


@dataclass(slots=True, kw_only=True)
class StaleOffsets(Operation):
    """Offsets that a producer sent in the name of a generation that was over; OK where they were taken."""

    group: str
    generation: int

    def describe(self) -> str:
        """In whose name."""
        return f"send offsets of {self.group} in the name of generation {self.generation}, which is over"
