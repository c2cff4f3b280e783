"""Rates of `busway top`, and its screen."""

from busway.cli.progress import GroupProgress
from busway.cli.top import Reading, group_rates, screen, topic_rates
from busway.types import TopicPartition as Tp


def reading(at_s: float, ends: dict[Tp, int], **offsets: dict[Tp, int]) -> Reading:
    """Positions with the lag that follows from them."""
    groups = [
        GroupProgress(name, "classic", "Stable", at, {tp: ends[tp] - offset for tp, offset in at.items() if tp in ends})
        for name, at in offsets.items()
    ]
    return Reading(at_s, ends, groups)


BEFORE = reading(10.0, {Tp("a", 0): 5, Tp("a", 1): 5, Tp("b", 0): 100, Tp("c", 0): 50}, g={Tp("a", 0): 1})
AFTER = reading(
    12.0,
    {Tp("a", 0): 9, Tp("a", 1): 5, Tp("b", 0): 140, Tp("c", 0): 7, Tp("d", 0): 3},
    g={Tp("a", 0): 7, Tp("gone", 0): 4},
    h={Tp("b", 0): 10},
)


def test_topics() -> None:
    """The busiest first. One that was created again, or was not there before, has no rate yet."""
    rates = [(rate.topic, rate.records_per_s, rate.end_offsets) for rate in topic_rates(BEFORE, AFTER)]
    assert rates == [("b", 20.0, 140), ("a", 2.0, 14), ("c", 0.0, 7), ("d", 0.0, 3)]


def test_groups() -> None:
    """The largest lag first; offsets in a deleted topic are left out."""
    rates = [(rate.group, rate.topic, rate.records_per_s, rate.lag) for rate in group_rates(BEFORE, AFTER)]
    assert rates == [("h", "b", 0.0, 130), ("g", "a", 3.0, 2)]


def test_the_screen() -> None:
    """Aligned columns, and no more rows than there is room for."""
    text = screen(topic_rates(BEFORE, AFTER), group_rates(BEFORE, AFTER), 2)
    assert text == (
        "topic  partitions  records/s  end offsets\n"
        "b               1       20.0          140\n"
        "a               2        2.0           14\n"
        "… and 2 more\n"
        "\n"
        "group  state   topic  records/s  lag\n"
        "h      Stable  b            0.0  130\n"
        "g      Stable  a            3.0    2\n"
    )
    assert screen([], [], None).splitlines() == [
        "topic  partitions  records/s  end offsets",
        "",
        "group  state  topic  records/s  lag",
    ]
