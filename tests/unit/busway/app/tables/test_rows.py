"""Rows in memory, attempts that are undone, listeners; without IO."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.app.tables.rows import INCLUDED, Attempt, Home, Rows


def attempt(offset: int = 0) -> Attempt[str, int]:
    """A call for a record of `events-0`."""
    return Attempt(topic="events", partition=0, offset=offset, key="a")


def home(**included: int) -> Home:
    """A row of partition 0 that has these events."""
    return Home(partition=0, included=included)


CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3)), st.booleans()), max_size=12
)


@given(CHANGES, CHANGES)
def test_an_attempt_that_fails_leaves_no_trace(before: list[tuple[str, int, bool]], during: list[tuple]) -> None:
    """Whatever a call put and deleted, in whatever order, undoing it gives the rows and what is included as they were."""
    rows: Rows[str, int] = Rows()
    for number, (key, value, _) in enumerate(before):
        rows.set_row(key, value, home(events=number))
    was = dict(rows), {key: rows.home(key) for key in "abc"}
    call = attempt(100)
    for key, value, _ in during:
        call.change(rows, key, value, rows.home(key) or home())
    call.undo(rows)
    assert (dict(rows), {key: rows.home(key) for key in "abc"}) == was


@given(CHANGES)
def test_undoing_keeps_what_somebody_else_made_of_a_row(steps: list[tuple]) -> None:
    """Two calls at once: the one that fails takes back only rows that still are what it put there."""
    rows: Rows[str, object] = Rows()
    failing: Attempt[str, object] = Attempt(topic="events", partition=0, offset=7, key="a")
    last: dict[str, tuple[bool, object]] = {}
    for key, _, mine in steps:
        value = object()
        if mine:
            failing.change(rows, key, value, home())
        else:
            rows.set_row(key, value, home())
        last[key] = mine, value
    failing.undo(rows)
    for key, (mine, value) in last.items():
        assert (rows.get(key) is value) is not mine


def test_a_row_tells_the_last_event_of_each_topic_in_its_header() -> None:
    """What is written is what is read, for several topics and for none."""
    written = home(rides=3).after("payments.eu", 12).after("rides", 9)
    assert written.header() == (INCLUDED, b"payments.eu@12,rides@9")
    assert Home.read(0, written.header()[1]) == written
    assert Home.read(4, None) == Home(partition=4, included={})
    assert Home.read(4, b"") == Home(partition=4, included={})
    with pytest.raises(ValueError, match="invalid literal"):
        Home.read(0, b"rides@many")


async def test_who_does_not_keep_up_misses_the_oldest_never_the_last() -> None:
    """A full queue gives its oldest change away; other listeners have queues of their own."""
    rows: Rows[str, int] = Rows()
    with rows.changes(maxsize=2) as slow, rows.changes() as fast:
        for value in range(5):
            rows.set_row("a", value, home())
        rows.set_row("a", None, None)
        rows.set_row("a", None, None)  # what is not there does not go
        assert [slow.get_nowait() for _ in range(slow.qsize())] == [("a", 4), ("a", None)]
        assert [fast.get_nowait() for _ in range(fast.qsize())] == [*(("a", value) for value in range(5)), ("a", None)]
    rows.set_row("a", 9, home())
    assert slow.empty()
    assert isinstance(slow, asyncio.Queue)
    with pytest.raises(ValueError, match="maxsize=0"), rows.changes(maxsize=0):
        pass


def test_rows_read_like_a_mapping() -> None:
    """What a dict can be asked, a table can be asked; it is equal to itself alone and may be in a set."""
    rows: Rows[str, int] = Rows()
    rows.set_row("a", 1, Home(partition=0, included={}))
    rows.set_row("b", 2, Home(partition=1, included={}))
    assert (rows["a"], rows.get("c"), rows.get("c", 7), len(rows), "b" in rows) == (1, None, 7, 2, True)
    assert (list(rows), list(rows.items()), sorted(rows.values())) == (["a", "b"], [("a", 1), ("b", 2)], [1, 2])
    with pytest.raises(KeyError):
        rows["c"]
    assert rows in {rows}
    rows.drop({1})
    assert dict(rows) == {"a": 1}
    rows.clear()
    assert not rows
