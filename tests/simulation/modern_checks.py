"""Checks of groups that their coordinator balances (KIP-848): one live owner, fenced members, votes for assignors, offsets that only grow.

Here: one function for each anomaly.
Not here: what holds in groups of both protocols (`group_checks`), that every partition has an owner in the end, which
is asked by the run itself (`scenario`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules
from tests.simulation.fencing_watch import FENCED_ALIVE
from tests.simulation.group_checks import NEVER
from tests.simulation.history import (
    Commit,
    ConsumerHeartbeat,
    DescribedGroup,
    Happening,
    History,
    Outcome,
    Ownership,
    Partition,
    Revoked,
    Revoking,
    Seat,
)

DEFAULT_ASSIGNOR: Final = "uniform"
_TAKEN_OVER_MS: Final = 3_000.0
"""A partition that is free is given to its next owner with one of its next heartbeats, which come every second."""
_HEARD_MS: Final = 2_000.0
_AFTERMATH_MS: Final = 20_000.0
"""For so long after a fault members may be away, or come and go."""


@dataclass(slots=True)
class _Tenure:
    """A member has a partition, as far as it knows, between two places in the order of events."""

    ownership: Ownership
    until: int = NEVER


def _tenures(history: History) -> dict[tuple[str, Partition], list[_Tenure]]:
    tenures: dict[tuple[str, Partition], list[_Tenure]] = defaultdict(list)
    having: dict[tuple[str, Partition], _Tenure] = {}
    groups = {ownership.group for ownership in history.of(Ownership) if ownership.balanced}
    for operation in history.operations:
        if isinstance(operation, Ownership) and operation.group in groups:
            for partition in operation.new:
                tenure = having[operation.process, partition] = _Tenure(operation)
                tenures[operation.group, partition].append(tenure)
        elif isinstance(operation, Revoked):
            for partition in operation.partitions:
                ended = having.pop((operation.process, partition), None)
                if ended is not None:
                    ended.until = operation.invoked
    return tenures


def two_live_owners(history: History, _: Rules) -> Iterator[Anomaly]:
    """A member is assigned a partition while another has it, and the coordinator goes on to accept that one's heartbeats.

    Who was killed, or is cut off until its session ends, has it too, but knows no better: its heart is heard no more.
    """
    beats: dict[str, list[ConsumerHeartbeat]] = defaultdict(list)
    for heartbeat in history.of(ConsumerHeartbeat):
        if heartbeat.ok:
            beats[heartbeat.process].append(heartbeat)
    for (group, partition), tenures in _tenures(history).items():
        for number, second in enumerate(tenures):
            since = second.ownership.invoked
            for first in tenures[:number]:
                if first.until <= since or first.ownership.member == second.ownership.member:
                    continue
                heard = [
                    heartbeat
                    for heartbeat in beats[first.ownership.process]
                    if since < heartbeat.invoked and (heartbeat.returned or NEVER) < min(first.until, second.until)
                ]
                if heard:
                    text = f"{partition} of {group} was given to {second.ownership.process} at {second.ownership.invoked_ms:.0f} ms"
                    yield Anomaly(
                        "two live owners",
                        f"{text}, {first.ownership.process} had it and was heard: {heard[0].describe()}",
                    )


def fenced_commits(history: History, _: Rules) -> Iterator[Anomaly]:
    """A commit is taken of who the coordinator knows to have given the partition up, or not at all."""
    for commit in history.of(Commit):
        if commit.stale and commit.ok:
            yield Anomaly("fenced commit", commit.describe())


def falling_offsets(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Members commit what they have read: an offset below one that was acknowledged before is one of a member that should be fenced."""
    highest: dict[tuple[str, Partition], Commit] = {}
    doubtful: dict[tuple[str, Partition], int] = {}
    events = [(commit.invoked, 0, commit) for commit in history.of(Commit)]
    events += [(commit.returned or NEVER, 1, commit) for commit in history.of(Commit) if commit.ok]
    for _, done, commit in sorted(events, key=lambda event: event[:2]):
        place = commit.group, commit.partition
        if not rules.get(commit.partition.topic, PLAIN).whole or commit.generation < 0:
            continue
        before = highest.get(place)
        if not done:
            if commit.outcome is Outcome.INFO or commit.tried:  # it may be in force at any time from now on, also late
                doubtful[place] = min(commit.offset, doubtful.get(place, NEVER))
            elif commit.ok and before is not None and commit.offset < min(before.offset, doubtful.get(place, NEVER)):
                yield Anomaly("falling offset", f"{commit.describe()}, after {before.describe()}")
        elif before is None or before.offset < commit.offset:
            highest[place] = commit


def held_seats(history: History, _: Rules) -> Iterator[Anomaly]:
    """A static member's temporary leave was acknowledged, and who comes for its seat is refused because it is taken."""
    seats: dict[tuple[str, str], list[Seat]] = defaultdict(list)
    for seat in history.of(Seat):
        seats[seat.group, seat.instance].append(seat)
    for requests in seats.values():
        for refused in requests:
            left = [
                request
                for request in requests
                if request.leaves and request.ok and (request.returned or NEVER) < refused.invoked
            ]
            if refused.leaves or refused.outcome is not Outcome.FAIL or not left:
                continue
            taken = [
                request
                for request in requests
                if not request.leaves
                and request.outcome is not Outcome.FAIL
                and request.invoked < (refused.returned or NEVER)
                and (request.returned or NEVER) > left[-1].invoked
            ]
            if not taken:
                yield Anomaly("seat not free", f"{refused.describe()}, after {left[-1].describe()}")


def fenced_alive(history: History, _: Rules) -> Iterator[Anomaly]:
    """A member that goes on with its heartbeats on another connection is not fenced because one was closed."""
    for event in history.of(Happening):
        if event.kind == FENCED_ALIVE:
            yield Anomaly("live member fenced", event.text)


def outvoted(history: History, _: Rules) -> Iterator[Anomaly]:
    """A group is not assigned by the assignor that most of its members have asked for, or not as that assigns."""
    for described in history.of(DescribedGroup):
        votes = Counter(vote for vote in described.votes.values() if vote is not None)
        most = max(votes.values(), default=0)
        chosen = {vote for vote, count in votes.items() if count == most} or {DEFAULT_ASSIGNOR}
        if described.assignor not in chosen:
            yield Anomaly("outvoted", f"{described.describe()}; {' or '.join(sorted(chosen))} has the most votes")
        elif described.settled and not _is_assigned_by(described):
            yield Anomaly("assigned by another assignor", described.describe())


def _is_assigned_by(described: DescribedGroup) -> bool:
    """Whether the assignor assigns like this: ranges of each topic, or as many partitions to each member as to any other."""
    if not described.alike:
        return True
    if described.assignor == DEFAULT_ASSIGNOR:
        return _are_level(len(partitions) for partitions in described.owned.values())
    for topic in {partition.topic for partitions in described.owned.values() for partition in partitions}:
        ranges = [
            sorted(partition.number for partition in partitions if partition.topic == topic)
            for partitions in described.owned.values()
        ]
        whole = all(numbers == list(range(numbers[0], numbers[0] + len(numbers))) for numbers in ranges if numbers)
        if not whole or not _are_level(map(len, ranges)):
            return False
    return True


def _are_level(counts: Iterable[int]) -> bool:
    ordered = sorted(counts)
    return ordered[-1] - ordered[0] <= 1


def held_back(history: History, _: Rules) -> Iterator[Anomaly]:
    """A static member left temporarily, and the partitions that it was revoking are still not assigned to another.

    Only where nothing else happens meanwhile: its target may have changed, or the next owner have been away.
    """
    events = [event for event in history.of(Happening) if event.kind != "warning"]
    for left in history.of(Seat):
        if not left.leaves or not left.ok or left.returned_ms is None:
            continue
        due_ms = left.returned_ms + _TAKEN_OVER_MS
        for asked in history.of(Revoking):
            if asked.process != left.process or asked.returned is not None or asked.invoked > left.invoked:
                continue
            disturbed = any(
                asked.invoked_ms - (0 if event.kind == "start" else _AFTERMATH_MS) < event.invoked_ms < due_ms
                for event in events
            )
            heard = any(
                heartbeat.ok and heartbeat.group == asked.group and heartbeat.process != asked.process
                for heartbeat in history.of(ConsumerHeartbeat)
                if due_ms - _HEARD_MS < heartbeat.invoked_ms < due_ms
            )
            taken = {
                partition
                for ownership in history.of(Ownership)
                if ownership.group == asked.group
                and ownership.process != asked.process
                and left.invoked < ownership.invoked
                if ownership.invoked_ms < due_ms
                for partition in ownership.new
            }
            if heard and not disturbed and (kept := asked.partitions - taken):
                text = f"{left.describe()}, and nobody was given {', '.join(map(str, sorted(kept)))} of what it gave up"
                yield Anomaly("partition held back", text)


CHECKS: Final[tuple[Check, ...]] = (
    two_live_owners,
    fenced_commits,
    falling_offsets,
    held_seats,
    fenced_alive,
    outvoted,
    held_back,
)
