"""Rows in memory, attempts that are undone, listeners; without IO."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.app.tables.rows import INCLUDED, Attempt, RowOrigin, Rows


def attempt(offset: int = 0) -> Attempt[str, int]:
    """A call for a record of `events-0`."""
    return Attempt(topic="events", partition=0, offset=offset, key="a")


def origin(**included: int) -> RowOrigin:
    """A row of partition 0 that has these events."""
    return RowOrigin(partition=0, included=included)


CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3)), st.booleans()), max_size=12
)


@given(CHANGES, CHANGES)
def test_an_attempt_that_fails_leaves_no_trace(before: list[tuple[str, int, bool]], during: list[tuple]) -> None:
    """Whatever a call put and deleted, in whatever order, undoing it gives the rows and what is included as they were."""
    rows: Rows[str, int] = Rows()
    for number, (key, value, _) in enumerate(before):
        rows._set_row(key, value, origin(events=number))
    was = dict(rows), {key: rows.home(key) for key in "abc"}
    call = attempt(100)
    for key, value, _ in during:
        call.change(rows, key, value, rows.home(key) or origin())
    call.undo(rows)
    assert (dict(rows), {key: rows.home(key) for key in "abc"}) == was


@given(CHANGES)
def test_undoing_keeps_what_somebody_else_made_of_a_row(steps: list[tuple]) -> None:
    """Two calls at once: the one that fails takes back only rows that still are what it put there."""
    rows: Rows[str, object] = Rows()
    failing: Attempt[str, object] = Attempt(topic="events", partition=0, offset=7, key="a")
    last: dict[str, tuple[bool, object]] = {}
    for key, _, is_own in steps:
        value = object()
        if is_own:
            failing.change(rows, key, value, origin())
        else:
            rows._set_row(key, value, origin())
        last[key] = is_own, value
    failing.undo(rows)
    for key, (is_own, value) in last.items():
        assert (rows.get(key) is value) is not is_own


def test_a_row_tells_the_last_event_of_each_topic_in_its_header() -> None:
    """What is written is what is read, for several topics and for none."""
    written = origin(rides=3).after("payments.eu", 12).after("rides", 9)
    assert written.header() == (INCLUDED, b"payments.eu@12,rides@9")
    assert RowOrigin.read(0, written.header()[1]) == written
    assert RowOrigin.read(4, None) == RowOrigin(partition=4, included={})
    assert RowOrigin.read(4, b"") == RowOrigin(partition=4, included={})
    with pytest.raises(ValueError, match="invalid literal"):
        RowOrigin.read(0, b"rides@many")


def test_a_call_adds_its_event_to_what_is_in_a_row() -> None:
    """Rows that only its topic goes into share an origin; in others the events of other topics stay, and the origins of others do not change."""
    rows: Rows[str, int] = Rows()
    other = origin(payments=12, events=3)
    rows._set_row("other", 1, other)
    rows._set_row("own", 1, origin(events=3))
    call = attempt(9)
    for key in ("other", "own", "new"):
        call.change(rows, key, 2, rows.home(key))
    assert rows.home("other") == origin(payments=12, events=9)
    assert rows.home("own") == origin(events=9)
    assert rows.home("own") is rows.home("new")
    assert other == origin(payments=12, events=3)


def test_a_change_is_told_with_what_the_row_became() -> None:
    """Its key and value, or None when it has gone; what is not there does not go."""
    rows: Rows[str, int] = Rows()
    with rows.changes(maxsize=10) as changes:
        for value in (1, 2, None, None):
            rows._set_row("a", value, origin())
    rows._set_row("a", 9, origin())
    assert [changes.get_nowait() for _ in range(changes.qsize())] == [("a", 1), ("a", 2), ("a", None)]


PLACES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.one_of(st.none(), st.integers(0, 9))), max_size=12
)


@given(PLACES, st.randoms(use_true_random=False))
def test_each_partition_has_rows_of_its_own(steps: list[tuple], order: random.Random) -> None:
    """In whatever order the logs of partitions are read, the newest row of a key is shown; a tombstone deletes its own partition's."""
    logs: dict[int, list[tuple]] = {}
    for time, (key, partition, value) in enumerate(steps):
        logs.setdefault(partition, []).append(
            (key, value, RowOrigin(partition=partition, included={}, written_ms=time))
        )
    left = {
        (key, origin.partition): (value, origin)
        for log in logs.values()
        for key, value, origin in log
        if value is not None
    }
    for log in logs.values():
        last = {key: value for key, value, _ in log}
        for key in [key for key, value in last.items() if value is None]:
            left.pop((key, log[0][2].partition), None)
    rows: Rows[str, int] = Rows()
    waiting = {partition: list(log) for partition, log in logs.items()}
    while waiting:
        partition = order.choice(sorted(waiting))
        rows._set_row(*waiting[partition].pop(0))
        if not waiting[partition]:
            del waiting[partition]
    for gone in (set(), {1}, {0, 2}):
        rows._drop(gone)
        left = {place: row for place, row in left.items() if place[1] not in gone}
        newest: dict[str, int] = {}
        for (key, _), (value, _) in sorted(left.items(), key=lambda item: item[1][1].written_ms):
            newest[key] = value
        assert dict(rows) == newest
        for key in "ab":
            assert rows._partitions_of(key) == {partition for row_key, partition in left if row_key == key}


def test_an_attempt_on_one_of_two_rows_of_a_key_is_undone_in_its_partition() -> None:
    """A call deletes its partition's row, the other one is shown, the call fails: its own row is back and the other untouched."""
    rows: Rows[str, int] = Rows()
    own_origin, other = (
        RowOrigin(partition=0, included={}, written_ms=2),
        RowOrigin(partition=1, included={}, written_ms=1),
    )
    rows._set_row("a", 1, other)
    rows._set_row("a", 0, own_origin)
    call = attempt(5)
    call.change(rows, "a", None, own_origin)
    assert rows["a"] == 1
    call.undo(rows)
    assert (rows._row_in(0, "a"), rows._row_in(1, "a"), rows["a"]) == ((0, own_origin), (1, other), 0)


def test_rows_read_like_a_mapping() -> None:
    """What a dict can be asked, a table can be asked; it is equal to itself alone and may be in a set."""
    rows: Rows[str, int] = Rows()
    rows._set_row("a", 1, RowOrigin(partition=0, included={}))
    rows._set_row("b", 2, RowOrigin(partition=1, included={}))
    assert (rows["a"], rows.get("c"), rows.get("c", 7), len(rows), "b" in rows) == (1, None, 7, 2, True)
    assert (list(rows), list(rows.items()), sorted(rows.values())) == (["a", "b"], [("a", 1), ("b", 2)], [1, 2])
    with pytest.raises(KeyError):
        rows["c"]
    assert rows in {rows}
    rows._drop({1})
    assert dict(rows) == {"a": 1}
    rows._forget()
    assert not rows


def test_each_change_of_one_call_is_told_where_other_partitions_have_the_key() -> None:
    """The rows of one call share an origin; what is not shown before and after is reported to no subscriber."""
    rows: Rows[str, int] = Rows()
    rows._set_row("a", 0, RowOrigin(partition=0, included={}, written_ms=1))
    rows._set_row("a", 1, RowOrigin(partition=1, included={}, written_ms=2))
    call: Attempt[str, int] = Attempt(topic="t", partition=0, offset=7, key="a")
    with rows.changes() as changes:
        for value in (2, 3):
            call.change(rows, "a", value, None)
        rows._set_row("a", 4, RowOrigin(partition=1, included={}, written_ms=3))
        assert [changes.get_nowait() for _ in range(changes.qsize())] == [("a", 2), ("a", 3)]
