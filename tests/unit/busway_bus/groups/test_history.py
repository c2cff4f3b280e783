"""The log of rebalances is bounded in entries and bytes, for each group and for all; what clients choose is cut."""

import json

from hypothesis import given
from hypothesis import strategies as st

from busway_bus.groups.history import Gathering, History
from busway_bus.kernel.limits import (
    EXPLAINED_GROUP_BYTES_MAX,
    EXPLAINED_MOVES_MAX,
    EXPLAINED_REASONS_MAX,
    EXPLAINED_REBALANCES_MAX,
    EXPLAINED_TEXT_MAX,
)


def test_what_clients_choose_is_cut_and_what_is_left_out_is_counted() -> None:
    """Ids and reasons of any size, any number of members and partitions."""
    gathering = Gathering(0, 7)
    for number in range(EXPLAINED_REASONS_MAX + 3):
        gathering.note("left", f"{number}" + "m" * 30_000, "é" * 30_000, client_id="c" * 30_000, instance="i" * 30_000)
    for number in range(EXPLAINED_MOVES_MAX + 1):
        gathering.lose(("t", number), "a" * 30_000)
        gathering.gain(("t", number), "b" * 30_000)
    entry = gathering.entry("classic", 3, 1, 5)
    assert len(entry["reasons"]) == EXPLAINED_REASONS_MAX
    assert entry["reasons_left_out"] == 3
    assert len(entry["moves"]) == EXPLAINED_MOVES_MAX
    assert not entry["moves_complete"]
    assert len(entry["reasons"][0]["reason"]) == EXPLAINED_TEXT_MAX
    assert len(json.dumps(entry)) < EXPLAINED_GROUP_BYTES_MAX * 2


def test_a_partition_that_comes_back_has_not_moved() -> None:
    """Taken and given to the same member."""
    gathering = Gathering(0, 0)
    gathering.lose(("t", 0), "a")
    gathering.gain(("t", 0), "a")
    gathering.gain(("t", 1), "a")
    assert gathering.entry("consumer", 1, 1, 0)["moves"] == [{"topic": "t", "partition": 1, "from": None, "to": "a"}]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4000)), max_size=200))
def test_the_log_is_bounded_and_counts_what_it_holds(steps) -> None:
    """Whatever is added: no group has more than it may, nor have all; the last that was added is there."""
    history = History(lambda: 0, limit=20_000)
    for number, (group, size) in enumerate(steps):
        history.add(group, {"number": number, "text": "x" * size})
        assert history.used <= 20_000
        assert json.loads(history.text(group))[-1]["number"] == number
        for other in "abcdef":
            kept = json.loads(history.text(other))
            assert len(kept) <= EXPLAINED_REBALANCES_MAX
            assert [entry["number"] for entry in kept] == sorted(entry["number"] for entry in kept)
    assert history.used == sum(history._held.values())
    assert not {group for group in "abcdef" if history.knows(group)} ^ set(history._held)
