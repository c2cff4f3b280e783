"""Which record may run now: for random keys, failures and completions, order is kept and everything ends."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.schedule import Schedule
from busway.app.model.topic import Ordering

KEYS = st.lists(st.sampled_from([None, b"", b"a", b"b", b"c"]), max_size=30)


@given(
    keys=KEYS, ordering=st.sampled_from(["key", "none", "partition"]), concurrency=st.integers(1, 4), choices=st.data()
)
def test_order_commits_and_end(
    keys: list[bytes | None], ordering: Ordering, concurrency: int, choices: st.DataObject
) -> None:
    """No record overtakes one of its key, not even one that is parked; no commit passes an unfinished one; all are finished."""
    if ordering == "partition":
        concurrency = 1
    schedule: Schedule[int] = Schedule(ordering=ordering, concurrency=concurrency)
    done = CompletedOffsets()
    arriving = list(enumerate(keys))[::-1]
    running: dict[int, object] = {}
    parked: dict[int, object] = {}
    finished: dict[object, list[int]] = defaultdict(list)
    left = 3 * len(keys)
    while len(done_offsets := [offset for offsets in finished.values() for offset in offsets]) < len(keys):
        moves = ["add"] * bool(arriving) + ["end", "park"] * bool(running) + ["due"] * bool(parked)
        while (due := schedule.next()) is not None:
            key, offset = due
            own_key = keys[offset]
            unfinished = [
                earlier for earlier in range(offset) if keys[earlier] == own_key and earlier not in done_offsets
            ]
            if ordering == "key" and (own_key is not None or concurrency == 1):
                assert not unfinished, "a record overtook one of its key"
            if ordering == "partition":
                assert len(done_offsets) == offset, "a record overtook one of its partition"
            running[offset] = key
            assert schedule.running == len(running) <= concurrency
            moves = [*moves, "end"]
        assert moves, "records are left and nothing can happen"
        move = choices.draw(st.sampled_from(moves))
        if move == "add":
            offset, new = arriving.pop()
            done.begin(offset)
            schedule.add(new, offset)
        elif move == "due":
            offset = choices.draw(st.sampled_from(sorted(parked)))
            schedule.due(parked.pop(offset), offset)
        else:
            offset = choices.draw(st.sampled_from(sorted(running)))
            key = running.pop(offset)
            if move == "park" and left:
                left -= 1
                schedule.park(key)
                parked[offset] = key
            else:
                schedule.finish(key)
                done.finish(offset)
                finished[key].append(offset)
        assert schedule.open == len(keys) - len(arriving) - sum(map(len, finished.values()))
        assert schedule.parked == len(parked)
        unfinished = sorted(set(range(len(keys))) - {offset for offsets in finished.values() for offset in offsets})
        assert (done.committable or 0) <= (unfinished[0] if unfinished else len(keys))
    assert done.committable == (len(keys) or None)
    assert (schedule.open, schedule.next()) == (0, None)
    assert not schedule._behind, "a key is held by nobody"


def start(schedule: Schedule[int], *keys: bytes | None) -> list[int]:
    """Add records and run what may run."""
    for offset, key in enumerate(keys):
        schedule.add(key, offset)
    return run(schedule)


def run(schedule: Schedule[int]) -> list[int]:
    offsets = []
    while (due := schedule.next()) is not None:
        offsets.append(due[1])
    return offsets


@pytest.mark.parametrize(
    ("ordering", "concurrency", "running"), [("key", 4, [0, 1, 3, 4]), ("none", 4, [0, 1, 2, 3]), ("key", 1, [0])]
)
def test_what_runs_at_once(ordering: Ordering, concurrency: int, running: list[int]) -> None:
    """Two of a key never do, records without a key do."""
    assert start(Schedule(ordering=ordering, concurrency=concurrency), b"a", b"b", b"a", None, None) == running


@pytest.mark.parametrize(("ordering", "flow"), [("key", [1, 3]), ("partition", []), ("none", [1, 2, 3])])
def test_what_flows_past_a_parked_record(ordering: Ordering, flow: list[int]) -> None:
    """Other keys; nothing; everything."""
    schedule: Schedule[int] = Schedule(ordering=ordering, concurrency=1)
    for offset, key in enumerate([b"a", b"b", b"a", b"c"]):
        schedule.add(key, offset)
    first = schedule.next()
    assert first is not None
    schedule.park(first[0])
    flown = []
    while (due := schedule.next()) is not None:
        flown.append(due[1])
        schedule.finish(due[0])
    assert flown == flow
    schedule.due(*first)
    assert run(schedule) == [0]
    schedule.finish(first[0])
    rest = []
    while (due := schedule.next()) is not None:
        rest.append(due[1])
        schedule.finish(due[0])
    assert rest == [offset for offset in (1, 2, 3) if offset not in flow]
