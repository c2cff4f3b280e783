"""What clients asked, when, and the answers: the history of one simulated run.

Here: the operations, the recorder, and values that say who wrote them where.
Not here: any judgement (`checks`).

Times are virtual milliseconds since the run began. Beside them each invocation and return has a place in the one order of all events of
the run: a simulation has such an order, so "returned before" is exact, also within one millisecond.

An operation is OK (done), FAIL (certainly not done) or INFO (unknown). A timeout is INFO, as is all that a killed client had under way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar
from zlib import crc32


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Seen(NamedTuple):
    """A record as a reader was given it; `value` is None for a tombstone."""

    partition: Partition
    offset: int
    value: bytes | None
    key: bytes | None = None


@dataclass(slots=True, kw_only=True)
class Operation:
    """Something that a client asked.

    Attributes:
        process: the client; one that is started again is another process.
        invoked, returned: places in the order of all events; `returned` is None while nothing came back.
        invoked_ms, returned_ms: virtual time.
        problem: why it is not OK.
    """

    process: str
    invoked: int = 0
    invoked_ms: float = 0.0
    returned: int | None = None
    returned_ms: float | None = None
    outcome: Outcome = Outcome.INFO
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.outcome is Outcome.OK

    def describe(self) -> str:
        """What was asked and answered, on one line."""
        return type(self).__name__.lower()


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """A record handed to a producer; `offset` is where it was acknowledged to be."""

    partition: Partition
    value: bytes | None
    key: bytes | None = None
    idempotent: bool = True
    offset: int | None = None

    def describe(self) -> str:
        """Where the record went."""
        where = "" if self.offset is None else f" at {self.offset}"
        return f"send {shown(self.value)} to {self.partition}{where}"


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """Records handed out, in order; `group` is None for a consumer that was given its partitions."""

    records: Sequence[Seen] = ()
    group: str | None = None

    def describe(self) -> str:
        """How much of what."""
        return "poll " + (", ".join(_runs(self.records)) or "nothing")


@dataclass(slots=True, kw_only=True)
class FinalRead(Operation):
    """All of a partition from `start` to `end` at the end of the run, when nothing is wrong any more."""

    partition: Partition
    start: int = 0
    end: int = 0
    records: Sequence[Seen] = ()

    def describe(self) -> str:
        """How much of what."""
        return f"read {self.partition} from {self.start} to {self.end}: {len(self.records)} records"


@dataclass(slots=True, kw_only=True)
class EndOffset(Operation):
    """The end of a partition as a reader may know it."""

    partition: Partition
    offset: int | None = None

    def describe(self) -> str:
        """The end."""
        return f"end of {self.partition} is {self.offset}"


@dataclass(slots=True, kw_only=True)
class Commit(Operation):
    """A group's offset committed by one member in one generation; -1 and "" where no member speaks for it; `stale` where it is one that has
    not heard of what came after; `tried` where it is not what was read: it is in force where the node lost the generation that came after
    before that was complete, as in Kafka."""

    group: str
    partition: Partition
    offset: int
    member: str = ""
    generation: int = -1
    stale: bool = False
    tried: bool = False

    def describe(self) -> str:
        """What was committed by whom."""
        by = f" by {self.member[-6:]} in generation {self.generation}" if self.generation >= 0 else ""
        return f"commit {self.group} {self.partition} {self.offset}{by}"


@dataclass(slots=True, kw_only=True)
class Committed(Operation):
    """A look at a group's offset; `offset` is None where none is committed."""

    group: str
    partition: Partition
    offset: int | None = None

    def describe(self) -> str:
        """What is committed."""
        return f"committed of {self.group} {self.partition} is {self.offset}"


class Deed(StrEnum):
    """What an administrator does to a topic."""

    CREATE = "create"
    DELETE = "delete"
    GROW = "grow"
    CONFIGURE = "configure"
    LOOK = "look at"


@dataclass(slots=True, kw_only=True)
class TopicDeed(Operation):
    """Something done to a topic, or what a client saw of it.

    Attributes:
        partitions: how many it is made with, grown to, or seen with; None where it was not seen.
        setting: the value of the one setting that is changed and looked at.
        exists: answer of a look, and of a FAIL that says so ("already exists", "unknown topic"); None where the answer does not say.
    """

    topic: str
    deed: Deed
    partitions: int | None = None
    setting: str | None = None
    exists: bool | None = None

    def describe(self) -> str:
        """What was done or seen."""
        parts = [f"{self.deed} {self.topic}"]
        if self.partitions is not None:
            parts.append(f"{self.partitions} partitions")
        if self.setting is not None:
            parts.append(f"setting {self.setting}")
        if self.exists is not None:
            parts.append("is there" if self.exists else "is not there")
        return " ".join(parts)


@dataclass(slots=True, kw_only=True)
class DeleteRecords(Operation):
    """Records below `before` are to go."""

    partition: Partition
    before: int

    def describe(self) -> str:
        """Up to where."""
        return f"delete records of {self.partition} before {self.before}"


@dataclass(slots=True, kw_only=True)
class Ownership(Operation):
    """A member learns what it owns in a generation, or in an epoch of its own where the coordinator balances the group (`modern`); where
    members of a group change their protocol (`migrating`), its generations begin with 1 again once it was empty."""

    group: str
    member: str
    generation: int
    owned: frozenset[Partition]
    new: frozenset[Partition]
    modern: bool = False
    migrating: bool = False

    @property
    def balanced(self) -> bool:
        """Whether its coordinator balances the group, or may do so."""
        return self.modern or self.migrating

    def describe(self) -> str:
        """Who owns what."""
        owned = ", ".join(map(str, sorted(self.owned))) or "nothing"
        return f"{self.member[-6:]} of {self.group} owns {owned} in generation {self.generation}"


@dataclass(slots=True, kw_only=True)
class Revoked(Operation):
    """A member has given partitions up, or learned that they are lost."""

    group: str
    partitions: frozenset[Partition]

    def describe(self) -> str:
        """What went."""
        return f"gives up {', '.join(map(str, sorted(self.partitions)))} of {self.group}"


@dataclass(slots=True, kw_only=True)
class Revoking(Operation):
    """A member was asked to give partitions up; it returns when it has, and never where the member leaves before."""

    group: str
    partitions: frozenset[Partition]

    def describe(self) -> str:
        """What it is to give up."""
        return f"has to give up {', '.join(map(str, sorted(self.partitions)))} of {self.group}"


@dataclass(slots=True, kw_only=True)
class ConsumerHeartbeat(Operation):
    """A heartbeat to the coordinator of a group; OK where it was taken, in which `epoch` or generation."""

    group: str
    member: str
    epoch: int = -1

    def describe(self) -> str:
        """Whose heart, in which epoch."""
        return f"heartbeat of {self.member[-6:]} of {self.group} in epoch {self.epoch}"


@dataclass(slots=True, kw_only=True)
class Seat(Operation):
    """A member asks for the seat of a static member (`instance`), or leaves it free for a while; FAIL where that is certainly not done."""

    group: str
    member: str
    instance: str
    leaves: bool

    def describe(self) -> str:
        """Who comes or goes."""
        verb = "leaves seat" if self.leaves else "asks for seat"
        return f"{self.member[-6:]} of {self.group} {verb} {self.instance}"


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Operation):
    """A group that its coordinator balances, as an administrator sees it when every partition has its owner.

    Attributes:
        assignor: the one that the coordinator says it uses.
        votes: the assignor that each member has asked for; None for any.
        owned: partitions of each member.
        settled: whether the target assignment is that of the group's epoch, and every member has its own.
        alike: whether all members subscribe to the same topics.
    """

    group: str
    assignor: str
    votes: Mapping[str, str | None]
    owned: Mapping[str, frozenset[Partition]]
    settled: bool = True
    alike: bool = True

    def describe(self) -> str:
        """Who owns what, by which assignor."""
        owned = "; ".join(
            f"{member[-6:]} ({self.votes[member] or 'any'}) {', '.join(map(str, sorted(partitions))) or 'nothing'}"
            for member, partitions in sorted(self.owned.items())
        )
        return f"{self.group} is assigned by {self.assignor}: {owned}"


@dataclass(slots=True, kw_only=True)
class Happening(Operation):
    """Something that no client asked: a fault, a restart, a line in a node's log.

    Attributes:
        kind: crash, power cut, damage, repair, warning, phase …
        partition: the one concerned, where it is one.
        lost_bytes: bytes that were not synced and are gone.
    """

    kind: str
    text: str = ""
    partition: Partition | None = None
    lost_bytes: int = 0

    def describe(self) -> str:
        """What happened."""
        return f"*** {self.kind}{': ' if self.text else ''}{self.text}"


AnOperation = TypeVar("AnOperation", bound=Operation)


@dataclass(slots=True)
class History:
    """All operations of a run, in the order in which they were invoked.

    Args:
        now_ms: virtual time since the run began.
        tell: called with a line for every event, for a replay.
    """

    now_ms: Callable[[], float] = lambda: 0.0
    tell: Callable[[str], None] | None = None
    operations: list[Operation] = field(default_factory=list)
    listeners: list[Callable[[Operation], None]] = field(default_factory=list)
    """Notified of every operation when it has returned."""
    _events: int = 0

    def begin(self, operation: AnOperation) -> AnOperation:
        """Note that it is asked now."""
        operation.invoked, operation.invoked_ms = self._next(), self.now_ms()
        self.operations.append(operation)
        return operation

    def end(self, operation: AnOperation, outcome: Outcome = Outcome.OK, problem: object = "") -> AnOperation:
        """Note how it ended; set what was answered first."""
        operation.returned, operation.returned_ms = self._next(), self.now_ms()
        operation.outcome, operation.problem = outcome, str(problem)
        if self.tell is not None:
            self.tell(line_of(operation))
        for listener in tuple(self.listeners):
            listener(operation)
        return operation

    def note(self, operation: AnOperation) -> AnOperation:
        """Note something that takes no time."""
        return self.end(self.begin(operation))

    def mark(self) -> int:
        """A place of its own in the order of all events: a part of an operation begins now."""
        return self._next()

    def of(self, kind: type[AnOperation]) -> Iterator[AnOperation]:
        """All operations of one kind."""
        return (operation for operation in self.operations if isinstance(operation, kind))

    def returned(self) -> list[Operation]:
        """All that returned, in the order of their returns: what a client was answered before another answer."""
        return sorted(
            (operation for operation in self.operations if operation.returned is not None),
            key=lambda operation: operation.returned or 0,
        )

    def lines(self) -> Iterator[str]:
        """One line for each operation, in the order of their returns; those that never returned come last."""
        last = self._events + 1
        ordered = sorted(self.operations, key=lambda operation: (operation.returned or last, operation.invoked))
        return map(line_of, ordered)

    def _next(self) -> int:
        self._events += 1
        return self._events


def line_of(operation: Operation) -> str:
    """One operation on one line: when, who, what, how it ended."""
    ended = operation.returned_ms if operation.returned_ms is not None else operation.invoked_ms
    outcome = "" if operation.ok else f" → {operation.outcome}"
    problem = f": {operation.problem}" if operation.problem else ""
    return f"{ended:10.3f} ms  {operation.process:<12} {operation.describe()}{outcome}{problem}"


# Values


def value_of(process: str, number: int, partition: Partition, filler: int = 0) -> bytes:
    """A value that no other client writes, and that names its partition and its own checksum.

    Args:
        filler: bytes to make it longer.
    """
    body = f"{process}|{number}|{partition.topic}|{partition.number}|{'.' * filler}"
    return f"{body}|{crc32(body.encode()):08x}".encode()


def partition_of(value: bytes) -> Partition | None:
    """The partition that a value was written for, None when it is damaged or no value of ours."""
    body, _, checksum = value.rpartition(b"|")
    if f"{crc32(body):08x}".encode() != checksum:
        return None
    _, _, topic, number, _ = body.decode().split("|")
    return Partition(topic, int(number))


def shown(value: bytes | None) -> str:
    """A value in short: who wrote it, and its number."""
    if value is None:
        return "tombstone"
    return "#".join(part.decode(errors="replace") for part in value.split(b"|")[:2])


def _runs(records: Sequence[Seen]) -> Iterator[str]:
    offsets: dict[Partition, list[int]] = {}
    for record in records:
        offsets.setdefault(record.partition, []).append(record.offset)
    for partition, partition_offsets in offsets.items():
        yield f"{partition} {partition_offsets[0]}" + (
            f" to {partition_offsets[-1]}" if len(partition_offsets) > 1 else ""
        )


Values = Mapping[bytes, Send]
"""Who sent a value."""
