"""Checks of consumer groups: committed offsets, who owns what, and whether anything was passed over.

Here: one function for each anomaly.
Not here: records and topics.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules
from tests.simulation.history import (
    Commit,
    Committed,
    Happening,
    History,
    Operation,
    Outcome,
    Ownership,
    Partition,
    Poll,
    Revoked,
    Send,
)
from tests.simulation.linearizable import IMPOSSIBLE, Step, Undecided, unexplained

EFFECT_MS: Final = 60_000.0
"""What was not answered takes effect by then, or never."""
NEVER: Final = 1 << 60


def deadline(history: History, operation: Operation) -> int:
    """The place in the order of events by which an operation without an answer has taken effect, or never does."""
    limit = operation.invoked_ms + EFFECT_MS
    later = (other.invoked for other in history.operations if other.invoked_ms > limit)
    return min(later, default=NEVER)


def committed_offsets(history: History, rules: Rules) -> Iterator[Anomaly]:
    """What a group has committed is a register: what is read is what was written last."""
    steps: dict[tuple[str, Partition], list[Step]] = defaultdict(list)
    for operation in history.operations:
        if isinstance(operation, Commit) and operation.outcome is not Outcome.FAIL:
            returned = operation.returned if operation.ok else deadline(history, operation)
            steps[operation.group, operation.partition].append(
                Step(
                    invoked=operation.invoked,
                    returned=returned or NEVER,
                    certain=operation.ok,
                    apply=_writes(operation.offset),
                    text=operation.describe(),
                )
            )
        elif isinstance(operation, Committed) and operation.ok:
            steps[operation.group, operation.partition].append(
                Step(
                    invoked=operation.invoked,
                    returned=operation.returned or NEVER,
                    certain=True,
                    apply=_reads({operation.offset}),
                    text=f"{operation.process} was told: {operation.describe()}",
                )
            )
    for (group, partition), step in _beginnings(history, rules):
        steps[group, partition].append(step)
    for (group, partition), partition_steps in steps.items():
        try:
            blocked = unexplained(partition_steps, None)
        except Undecided:
            continue
        if blocked is not None:
            yield Anomaly("committed offset", f"{group} {partition}: nothing explains that {blocked.text}")


def _writes(offset: int) -> Any:
    return lambda _: offset


def _reads(offsets: set[int | None]) -> Any:
    return lambda state: state if state in offsets else IMPOSSIBLE


def _beginnings(history: History, rules: Rules) -> Iterator[tuple[tuple[str, Partition], Step]]:
    """A member that is given a partition begins at the group's committed offset: each first poll is a look at it."""
    since: dict[tuple[str, Partition], tuple[int, str]] = {}
    latest: dict[str, int] = {}
    for operation in history.returned():
        before = latest.get(operation.process, 0)
        if isinstance(operation, Ownership):
            for partition in operation.new:
                since[operation.process, partition] = (before, operation.group)
        elif isinstance(operation, Revoked):
            for partition in operation.partitions:
                since.pop((operation.process, partition), None)
        elif isinstance(operation, Poll):
            for record in operation.records:
                known = since.pop((operation.process, record.partition), None)
                if known is None or not rules.get(record.partition.topic, PLAIN).whole:
                    continue
                offsets: set[int | None] = {record.offset}
                if record.offset == 0:
                    offsets.add(None)
                step = Step(
                    invoked=known[0],
                    returned=operation.returned or NEVER,
                    certain=True,
                    apply=_reads(offsets),
                    text=f"{operation.process} begins {record.partition} at {record.offset}",
                )
                yield (known[1], record.partition), step
        if operation.returned is not None:
            latest[operation.process] = max(before, operation.returned)


def double_ownership(history: History, _: Rules) -> Iterator[Anomaly]:
    """Two members own a partition in one generation. Where the coordinator balances, who takes a static member's place takes its epoch too:
    `modern_checks.two_live_owners` looks there."""
    owners: dict[tuple[str, int, Partition], str] = {}
    balanced = {ownership.group for ownership in history.of(Ownership) if ownership.balanced}
    for ownership in history.of(Ownership):
        if ownership.group in balanced:
            continue
        for partition in ownership.owned:
            other = owners.setdefault((ownership.group, ownership.generation, partition), ownership.member)
            if other != ownership.member:
                text = f"{partition} of {ownership.group} belongs to {other[-6:]} and {ownership.member[-6:]}"
                yield Anomaly("double ownership", f"{text} in generation {ownership.generation}")


def poll_after_revoke(history: History, _: Rules) -> Iterator[Anomaly]:
    """A member is handed records of a partition that it has given up."""
    owned: dict[str, set[Partition]] = defaultdict(set)
    for operation in history.returned():
        if isinstance(operation, Ownership):
            owned[operation.process] |= operation.owned
        elif isinstance(operation, Revoked):
            owned[operation.process] -= operation.partitions
        elif isinstance(operation, Poll) and operation.group is not None and operation.process in owned:
            for partition in {record.partition for record in operation.records} - owned[operation.process]:
                # What was revoked while the poll was under way was handed out before.
                if not _revoked_during(history, operation, partition):
                    yield Anomaly("poll after revoke", f"{operation.process} was given records of {partition}")


def _revoked_during(history: History, poll: Poll, partition: Partition) -> bool:
    return any(
        revoked.process == poll.process
        and partition in revoked.partitions
        and poll.invoked < revoked.invoked < (poll.returned or NEVER)
        for revoked in history.of(Revoked)
    )


def zombie_commits(history: History, _: Rules) -> Iterator[Anomaly]:
    """A commit of a generation succeeds although a later one had begun before it was asked; in a group that its coordinator balances,
    where members come to a new epoch one after the other, although the partition had been given to another member in a later one. Where
    members change their protocol a higher generation is not always a later one."""
    migrating = {ownership.group for ownership in history.of(Ownership) if ownership.migrating}
    begun: dict[str, list[tuple[int, Ownership]]] = defaultdict(list)
    modern = {ownership.group for ownership in history.of(Ownership) if ownership.modern}
    for operation in history.operations:
        if isinstance(operation, Ownership):
            begun[operation.group].append((operation.invoked, operation))
        elif isinstance(operation, Commit) and operation.ok and operation.generation >= 0:
            if operation.group in migrating:
                continue
            for invoked, ownership in begun[operation.group]:
                generation, member = ownership.generation, ownership.member
                theirs = operation.partition in ownership.new and member != operation.member
                if operation.group in modern and not theirs:
                    continue
                if invoked < operation.invoked and generation > operation.generation:
                    text = f"{operation.describe()}, after {member[-6:]} had joined generation {generation}"
                    yield Anomaly("zombie commit", text)
                    break


def passed_over(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A group commits an offset behind a record that no member was given."""
    known: dict[Partition, set[int]] = defaultdict(set)
    for send in history.of(Send):
        if send.ok and send.offset is not None:
            known[send.partition].add(send.offset)
    given: dict[tuple[str, Partition], set[int]] = defaultdict(set)
    events: list[tuple[int, Poll | Commit]] = []
    for operation in history.operations:
        if isinstance(operation, Poll) and operation.group is not None and operation.returned is not None:
            events.append((operation.returned, operation))
        elif isinstance(operation, Commit) and operation.ok:
            events.append((operation.returned or 0, operation))
    for _, operation in sorted(events, key=lambda event: event[0]):
        if isinstance(operation, Poll):
            for record in operation.records:
                given[operation.group or "", record.partition].add(record.offset)
        elif rules.get(operation.partition.topic, PLAIN).whole:
            offsets = {offset for offset in known[operation.partition] if offset < operation.offset}
            missing = offsets - given[operation.group, operation.partition]
            if missing:
                yield Anomaly("passed over", f"{operation.describe()}; nobody was given {min(missing)}")


def undelivered(history: History, rules: Rules) -> Iterator[Anomaly]:
    """After the liveness phase a group that lives has read everything that was acknowledged."""
    if not any(event.kind == "converged" for event in history.of(Happening)):
        return
    groups = {ownership.group for ownership in history.of(Ownership)}
    for group in groups:
        given = {record[:2] for poll in history.of(Poll) if poll.group == group for record in poll.records}
        topics = {
            partition.topic
            for ownership in history.of(Ownership)
            if ownership.group == group
            for partition in ownership.owned
        }
        for send in history.of(Send):
            whole = send.partition.topic in topics and rules.get(send.partition.topic, PLAIN).whole
            if send.ok and send.offset is not None and whole and (send.partition, send.offset) not in given:
                yield Anomaly("undelivered", f"{group} was never given {send.describe()}")


CHECKS: Final[tuple[Check, ...]] = (
    committed_offsets,
    double_ownership,
    poll_after_revoke,
    zombie_commits,
    passed_over,
    undelivered,
)
