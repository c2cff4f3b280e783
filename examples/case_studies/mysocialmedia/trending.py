"""What is trending: each like or comment counts for half as much after each half-life.

What lives here: a post's heat, and the hottest posts. What does not: totals (`domain`).

The score of a post at time t is the sum of `weight * 2^-((t - at) / half-life)` over what happened to it. All scores shrink alike, so
their order never depends on t: `heat = log2(score at t) + t / half-life` is one number that stays as it is while nothing happens, and
that sorts posts without a clock (forward decay: Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009).
"""

import datetime as dt
import heapq
import math
from collections.abc import Iterable
from typing import Final

from mysocialmedia.events import Kind, Post

WEIGHTS: Final = {Kind.POSTED: 1.0, Kind.LIKED: 1.0, Kind.COMMENTED: 3.0}
"""What warms a post, and how much; what is taken back stays warm, for interest it was."""
HALF_LIFE: Final = dt.timedelta(minutes=30)
COLD: Final = -math.inf
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def ages(at: dt.datetime, half_life: dt.timedelta = HALF_LIFE) -> float:
    """Half-lives since the epoch."""
    return (at - _EPOCH) / half_life


def warmed(heat: float, weight: float, at: dt.datetime, half_life: dt.timedelta = HALF_LIFE) -> float:
    """The heat after something of this weight happened at `at`; it may have happened before what is in there already."""
    added = math.log2(weight) + ages(at, half_life)
    if heat == COLD:
        return added
    high, low = max(heat, added), min(heat, added)
    return high + math.log2(1.0 + 2.0 ** (low - high))


def score(heat: float, at: dt.datetime, half_life: dt.timedelta = HALF_LIFE) -> float:
    """What a post's events still weigh at `at`."""
    return 0.0 if heat == COLD else 2.0 ** (heat - ages(at, half_life))


def hottest(posts: Iterable[Post], count: int) -> list[Post]:
    """The hottest posts that are not deleted, hottest first; of two equally hot ones the one whose id sorts first."""
    return heapq.nsmallest(
        count, (post for post in posts if not post.deleted), key=lambda post: (-post.heat, post.post_id)
    )
