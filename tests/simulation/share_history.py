"""What members of share groups asked and were answered, as it went over the wire.

Here: the operations.
Not here: the recorder and all other operations (`history`), any judgement (`share_checks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.history import Operation, Partition, Seen


class Given(NamedTuple):
    """Records, bounds included, that a member has got, and for which time they are delivered."""

    partition: Partition
    first: int
    last: int
    delivery_count: int

    def __str__(self) -> str:
        return f"{self.partition} {self.first} to {self.last} for the {self.delivery_count}. time"


class Said(NamedTuple):
    """What a member has said of records, bounds included; `problem` is empty where that was taken."""

    partition: Partition
    first: int
    last: int
    kind: int
    problem: str = ""

    def __str__(self) -> str:
        refused = f" (refused: {self.problem})" if self.problem else ""
        return f"{('gap', 'accept', 'release', 'reject', 'renew')[self.kind]} {self.partition} {self.first} to {self.last}{refused}"


@dataclass(slots=True, kw_only=True)
class ShareRequest(Operation):
    """One ShareFetch or ShareAcknowledge of a member; INFO where no answer came, or one that ended its session.

    Attributes:
        group: whose member.
        member: its id.
        fetches: whether it may get records.
        begins, ends: whether it begins or ends a session.
        given: what it got.
        said: what it said.
        lock_ms: for how long it has what it got.
    """

    group: str
    member: str
    fetches: bool
    begins: bool = False
    ends: bool = False
    given: Sequence[Given] = ()
    said: Sequence[Said] = ()
    lock_ms: int = 0

    def describe(self) -> str:
        """What was said and given."""
        parts = [str(part) for part in (*self.said, *self.given)]
        what = "share fetch" if self.fetches else "share acknowledge"
        life = " (begins)" * self.begins + " (ends)" * self.ends
        return f"{what} of {self.member[:6]} in {self.group}{life}: {'; '.join(parts) or 'nothing'}"


@dataclass(slots=True, kw_only=True)
class ShareTaken(Operation):
    """Records handed out to a member; `committed` where its group reads only those of committed transactions."""

    group: str
    committed: bool
    records: Sequence[Seen] = ()

    def describe(self) -> str:
        """How much."""
        places = ", ".join(f"{record.partition}@{record.offset}" for record in self.records[:5])
        return f"{self.group} takes {places or 'nothing'}" + (" …" if len(self.records) > 5 else "")


@dataclass(slots=True, kw_only=True)
class ShareStart(Operation):
    """A look at where a group goes on in a partition: all before it is done with. `end` of the partition where nothing is left of it to
    be done with: only what has changed afterwards moves the start over what is done with."""

    group: str
    partition: Partition
    offset: int
    end: int | None = None

    def describe(self) -> str:
        """Where."""
        return f"{self.group} goes on in {self.partition} at {self.offset}" + (
            f", and is done with all before {self.end}" if self.end is not None else ""
        )


class DeadLetter(NamedTuple):
    """A record that a group has given up, as its dead letter tells it (KIP-1191); `value` is None where nothing was taken along."""

    partition: Partition
    offset: int
    delivery_count: int
    value: bytes | None = None

    def __str__(self) -> str:
        return f"{self.partition} {self.offset}, which was delivered {self.delivery_count} times"


@dataclass(slots=True, kw_only=True)
class ShareLetters(Operation):
    """All dead letters of a group that were on disk when it was asked for them."""

    group: str
    letters: Sequence[DeadLetter] = ()

    def describe(self) -> str:
        """Of which records."""
        places = ", ".join(f"{letter.partition}@{letter.offset}" for letter in self.letters[-5:])
        return f"{len(self.letters)} dead letters of {self.group}" + (f", the last ones of {places}" if places else "")


@dataclass(slots=True, kw_only=True)
class ShareReset(Operation):
    """A group is to go on from an offset, or is to forget where it was and begins at the first."""

    group: str
    partition: Partition
    offset: int

    def describe(self) -> str:
        """Where."""
        return f"reset {self.group} {self.partition} to {self.offset}"
