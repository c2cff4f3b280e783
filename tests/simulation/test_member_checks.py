"""The checks of groups that their coordinator balances, and of services, find what they are for, and nothing where all is well."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.simulation import group_checks, modern_checks, service_checks
from tests.simulation.fencing_watch import FENCED, FENCED_ALIVE
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
    Seen,
)
from tests.simulation.service_history import Copied, Row, ServiceRead, is_poison, row_key

P = Partition("plain", 0)
SOURCE = Partition("ledger", 0)


def ownership_of(process: str, epoch: int, *, member: str = "") -> Ownership:
    return Ownership(
        process=process,
        group="g",
        member=member or process,
        generation=epoch,
        owned=frozenset([P]),
        new=frozenset([P]),
        modern=True,
    )


def names(history: History, check: Callable[..., object]) -> list[str]:
    return [anomaly.name for anomaly in check(history, {})]  # type: ignore[attr-defined]


def test_two_live_owners() -> None:
    """An owner whose heartbeat comes afterwards is live; one without a heartbeat knows no better."""
    history = History()
    history.note(ownership_of("a", 1))
    history.note(ownership_of("b", 2))
    assert names(history, modern_checks.two_live_owners) == []
    history.note(ConsumerHeartbeat(process="a", group="g", member="a", epoch=1))
    assert names(history, modern_checks.two_live_owners) == ["two live owners"]


def test_two_live_owners_of_both_protocols() -> None:
    """A member of the classic protocol counts where members change theirs; its generations say nothing there."""
    history = History()
    history.note(replace(ownership_of("a", 2), modern=False, migrating=True))
    history.note(replace(ownership_of("b", 2), migrating=True))
    assert names(history, group_checks.double_ownership) == []
    history.note(ConsumerHeartbeat(process="a", group="g", member="a", epoch=2))
    assert names(history, modern_checks.two_live_owners) == ["two live owners"]


def test_who_gives_up_first_is_no_second_owner() -> None:
    """Nor is a heartbeat after that a sign of anything, or one that was asked before the other was assigned."""
    history = History()
    history.note(ownership_of("a", 1))
    heartbeat = history.begin(ConsumerHeartbeat(process="a", group="g", member="a", epoch=1))
    history.note(Revoked(process="a", group="g", partitions=frozenset([P])))
    history.note(ownership_of("b", 2))
    history.end(heartbeat)
    history.note(ConsumerHeartbeat(process="a", group="g", member="a", epoch=2))
    assert names(history, modern_checks.two_live_owners) == []


def test_a_live_member_that_was_fenced() -> None:
    """One that was away is fenced without anything being wrong."""
    history = History()
    history.note(Happening(process="world", kind=FENCED, text="a of g"))
    assert names(history, modern_checks.fenced_alive) == []
    history.note(Happening(process="world", kind=FENCED_ALIVE, text="b of g"))
    assert names(history, modern_checks.fenced_alive) == ["live member fenced"]


def commit(offset: int, outcome: Outcome = Outcome.OK, *, stale: bool = False) -> tuple[Commit, Outcome]:
    made = Commit(process="a", group="g", partition=P, offset=offset, member="a", generation=1, stale=stale)
    return made, outcome


def test_a_fenced_commit() -> None:
    history = History()
    for made, outcome in (commit(0, Outcome.FAIL, stale=True), commit(0, stale=True)):
        history.end(history.begin(made), outcome)
    assert names(history, modern_checks.fenced_commits) == ["fenced commit"]


def test_a_falling_offset() -> None:
    """One whose end is unknown may come late, and what is read on from there is not falling."""
    history, doubtful = History(), History()
    for made, outcome in (commit(5), commit(9), commit(7)):
        history.end(history.begin(made), outcome)
    for made, outcome in (commit(5, Outcome.INFO), commit(9), commit(7)):
        doubtful.end(doubtful.begin(made), outcome)
    assert names(history, modern_checks.falling_offsets) == ["falling offset"]
    assert names(doubtful, modern_checks.falling_offsets) == []


def seat(member: str, outcome: Outcome = Outcome.OK, *, leaves: bool = False) -> tuple[Seat, Outcome]:
    return Seat(process=member, group="g", member=member, instance="seat", leaves=leaves), outcome


def test_a_seat_that_is_not_free() -> None:
    """Who has left, and knows it, has its seat no more; a member that may have come since then has it."""
    left, refused = seat("a", leaves=True), seat("c", Outcome.FAIL)
    for made, expected in (
        ([left, refused], ["seat not free"]),
        ([seat("a"), refused], []),
        ([seat("a", Outcome.INFO, leaves=True), refused], []),
        ([left, seat("b"), refused], []),
        ([left, seat("b", Outcome.INFO), refused], []),
        ([left, seat("b", Outcome.FAIL)], ["seat not free"]),
        ([seat("b"), left, refused], ["seat not free"]),
    ):
        history = History()
        for request, outcome in made:
            history.end(history.begin(replace(request)), outcome)
        assert names(history, modern_checks.held_seats) == expected


@dataclass
class Timed:
    """A history with a clock: what a static member `a` was giving up when it left, and what became of that."""

    now_ms: float = 30_000.0

    def __post_init__(self) -> None:
        self.history = History(lambda: self.now_ms)

    def leaves(self, outcome: Outcome = Outcome.OK) -> None:
        self.history.begin(Revoking(process="a", group="g", partitions=frozenset([P])))
        made, _ = seat("a", leaves=True)
        self.history.end(self.history.begin(made), outcome)

    def goes_on(self, *, heard: bool = True) -> None:
        """Another member sends heartbeats for four seconds."""
        for _ in range(4):
            self.now_ms += 1_000.0
            if heard:
                self.history.note(ConsumerHeartbeat(process="b", group="g", member="b", epoch=2))


def held_back(timed: Timed) -> list[str]:
    return names(timed.history, modern_checks.held_back)


def test_a_partition_that_is_held_back() -> None:
    """What a static member was giving up when it left is another's soon."""
    timed = Timed()
    timed.leaves()
    timed.goes_on()
    assert held_back(timed) == ["partition held back"]


def test_a_partition_that_is_not_held_back() -> None:
    """It was given on, the member may not have left, no other member was there, or something else happened."""
    given, doubtful, alone, disturbed, earlier = (Timed() for _ in range(5))
    given.leaves()
    given.history.note(ownership_of("b", 2))
    doubtful.leaves(Outcome.INFO)
    alone.leaves()
    disturbed.leaves()
    disturbed.now_ms += 1.0
    disturbed.history.note(Happening(process="c", kind="start"))
    earlier.history.note(Happening(process="world", kind="freeze"))
    earlier.leaves()
    for timed in (given, doubtful, alone, disturbed, earlier):
        timed.goes_on(heard=timed is not alone)
        assert held_back(timed) == []


def test_a_partition_that_is_given_on_too_late() -> None:
    """Another member is given it once the static one may have come back."""
    timed = Timed()
    timed.leaves()
    timed.goes_on()
    timed.history.note(ownership_of("b", 2))
    assert held_back(timed) == ["partition held back"]


def described(
    assignor: str, *votes: str | None, owned: str, settled: bool = True, alike: bool = True
) -> DescribedGroup:
    """A group whose members have partitions of two topics: "a0 b0/a1" are two members."""
    members = [f"m{number}" for number in range(len(votes))]
    shares = [frozenset(Partition(name[0], int(name[1])) for name in share.split()) for share in owned.split("/")]
    return DescribedGroup(
        process="owners",
        group="g",
        assignor=assignor,
        votes=dict(zip(members, votes, strict=True)),
        owned=dict(zip(members, shares, strict=True)),
        settled=settled,
        alike=alike,
    )


@pytest.mark.parametrize(
    ("group", "names_of"),
    [
        (described("uniform", None, None, owned="a0/a1"), []),
        (described("range", None, None, owned="a0/a1"), ["outvoted"]),
        (described("range", "range", None, owned="a0/a1"), []),
        (described("uniform", "range", None, owned="a0/a1"), ["outvoted"]),
        (described("range", "range", "uniform", "uniform", owned="a0/a1/a2"), ["outvoted"]),
        (described("range", "range", "uniform", owned="a0/a1"), []),
        (described("uniform", "range", "uniform", owned="a0/a1"), []),
        (described("uniform", None, None, owned="a0 b0/"), ["assigned by another assignor"]),
        (described("uniform", None, None, owned="a0 b0/", settled=False), []),
        (described("uniform", None, None, owned="a0 b0/", alike=False), []),
        (described("uniform", None, None, owned="a0 a2/a1"), []),
        (described("range", "range", None, owned="a0 b0/"), []),
        (described("range", "range", None, owned="a0 a1/a2"), []),
        (described("range", "range", None, owned="a0 a2/a1"), ["assigned by another assignor"]),
        (described("range", "range", None, owned="a0 a1 a2/a3"), ["assigned by another assignor"]),
    ],
)
def test_votes_for_an_assignor(group: DescribedGroup, names_of: list[str]) -> None:
    """The assignor that most members ask for assigns; where none asks, the default does."""
    history = History()
    history.note(group)
    assert names(history, modern_checks.outvoted) == names_of


# Services

VALUES = [value for value in (f"v{number}".encode() for number in range(100)) if not is_poison(value)][:3]
POISON = next(value for value in (f"p{number}".encode() for number in range(100)) if is_poison(value))


def reading() -> ServiceRead:
    """What a service leaves behind that has handled three records, and put one aside."""
    source = [Seen(SOURCE, offset, value) for offset, value in enumerate([*VALUES, POISON])]
    rows: dict[str, Row] = {}
    copies, changes = [], []
    place, table = Partition("copies", 0), Partition("counts", 0)
    for record in source[:3]:
        key = row_key(0, record.value)
        rows[key] = rows.get(key, Row()).after(record.offset)
        copies.append(Seen(place, len(copies), Copied("s", SOURCE, record.offset, rows[key]).text()))
        changes.append(Seen(table, len(changes), "/".join(map(str, rows[key])).encode(), key.encode()))
    return ServiceRead(
        process="s",
        ordered=True,
        sources={SOURCE: source},
        copies={place: copies},
        rows={table: changes},
        letters=[(SOURCE, 3)],
        live=[("s", key, row) for key, row in rows.items()],
    )


def anomaly_names(read: ServiceRead) -> set[str]:
    history = History()
    history.note(read)
    return {anomaly.name for check in service_checks.CHECKS for anomaly in check(history, {})}


def test_a_service_that_did_well() -> None:
    assert anomaly_names(reading()) == set()


def test_a_service_that_did_not() -> None:
    """Each way in which output, dead letters and table can differ from what was read has a name."""
    good = reading()
    ((place, copies),) = good.copies.items()
    ((table, rows),) = good.rows.items()
    assert anomaly_names(replace(good, copies={place: copies[:2]})) == {"not handled"}
    twice = [*copies, copies[2]._replace(offset=3)]
    assert anomaly_names(replace(good, copies={place: twice})) == {"handled twice"}
    assert anomaly_names(replace(good, letters=[])) == {"not handled"}
    assert anomaly_names(replace(good, letters=[(SOURCE, 3), (SOURCE, 0)])) == {"handled in two ways"}
    assert anomaly_names(replace(good, letters=[(SOURCE, 3), (SOURCE, 9)])) == {"handled what is not there"}
    turned = [copies[1]._replace(offset=0), copies[0]._replace(offset=1), copies[2]]
    assert anomaly_names(replace(good, copies={place: turned})) == {"handled out of order"}
    other = copies[2]._replace(value=Copied("s", SOURCE, 2, Row(9, 9, 9)).text())
    assert anomaly_names(replace(good, copies={place: [*copies[:2], other]})) == {"handled with another row"}
    assert "table is not its events" in anomaly_names(replace(good, rows={table: rows[:2]}))
    assert anomaly_names(replace(good, rows={table: [*rows, rows[2]._replace(offset=3)]})) == {"row falls back"}
    assert anomaly_names(replace(good, live=[("s", "0.0", Row(7, 7, 7))])) == {"table in memory is not its topic"}
