"""What to ask for next.

What lives here: sorting assigned partitions by what they need, and from whom; no IO. What does not: asking (`fetcher`).
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from busway.consumer.position_resolver import RESETS
from busway.consumer.subscription import Assigned

CHUNKS_AHEAD: Final = 8
"""Batches that may wait undecoded in a partition; below it the partition is fetched again."""


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """Who needs what.

    Attributes:
        uncommitted: their committed offset is to be looked up.
        unplaced: by leader: an end of their log is.
        wanting: by leader: they are to be fetched.
        full: leaders of partitions that have enough for now.
        leaderless: nobody is known to have them.
        wait_s: until a partition that was put off is to be looked at again; None: none is.
    """

    uncommitted: list[Assigned] = field(default_factory=list)
    unplaced: dict[int, list[Assigned]] = field(default_factory=dict)
    wanting: dict[int, list[Assigned]] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)
    leaderless: list[Assigned] = field(default_factory=list)
    wait_s: float | None = None


def plan(
    assigned: Iterable[Assigned], now_s: float, leader_of: Callable[[Assigned], int | None], asked: Container[int]
) -> FetchPlan:
    """The next requests; `asked` are the leaders that have a fetch under way."""
    result = FetchPlan()
    for found in assigned:
        if found.placing or (found.position is not None and found.paused):
            continue
        if (left_s := found.retry_at - now_s) > 0:
            result.wait_s = left_s if result.wait_s is None else min(result.wait_s, left_s)
            continue
        if found.position is None and found.reset == "committed":
            result.uncommitted.append(found)
            continue
        leader = leader_of(found)
        if leader is None:
            result.leaderless.append(found)
        elif found.position is None:
            if found.reset in RESETS:  # else whoever reads has to seek
                result.unplaced.setdefault(leader, []).append(found)
        elif len(found.chunks) >= CHUNKS_AHEAD:
            result.full.add(leader)
        elif leader not in asked:
            result.wanting.setdefault(leader, []).append(found)
    return result
