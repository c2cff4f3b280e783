"""Choice of the next requests.

What lives here: sorting assigned partitions by the request that they need and by leader; no IO. What does not: sending
(`fetcher`).
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from busway.consumer.position_resolver import RESETS
from busway.consumer.subscription import Assigned

CHUNKS_AHEAD: Final = 8
"""Undecoded batches that a partition may buffer; with fewer it is fetched again."""


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """Partitions by the request that they need.

    Attributes:
        uncommitted: need their committed offset.
        unplaced: need the start or end of their log; by leader.
        wanting: need a fetch; by leader.
        full: leaders of partitions with a full buffer.
        leaderless: have no known leader.
        wait_s: until the first postponed partition is due; None without one.
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
    """Return the next requests; leaders in `asked` have a fetch in flight."""
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
            if found.reset in RESETS:  # "none": the reader has to seek
                result.unplaced.setdefault(leader, []).append(found)
        elif len(found.chunks) >= CHUNKS_AHEAD:
            result.full.add(leader)
        elif leader not in asked:
            result.wanting.setdefault(leader, []).append(found)
    return result
