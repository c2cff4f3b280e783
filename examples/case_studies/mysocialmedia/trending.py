"""What is trending: each like or comment counts for half as much after each half-life.

Here: a post's heat, and the hottest posts.
Not here: totals (`domain`).

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
"""What warms a post, and how much; what is taken back takes its warmth with it, or one user could heat a post alone."""
HALF_LIFE: Final = dt.timedelta(minutes=30)
"""Heats of different half-lives do not compare: keep it for as long as the posts are kept."""
TOP: Final = 20
"""Trending posts that are published."""
RESERVE: Final = 200
"""Posts that are kept in the ranking: when some of the top are deleted, the next ones are known."""
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


def cooled(heat: float, weight: float, at: dt.datetime, *, least: float, half_life: dt.timedelta = HALF_LIFE) -> float:
    """The heat as if something of this weight had not happened at `at`; never below `least`, what cannot be taken back."""
    taken = 2.0 ** min(math.log2(weight) + ages(at, half_life) - heat, 0.0)
    return least if taken >= 1.0 else max(heat + math.log2(1.0 - taken), least)


def score(heat: float, at: dt.datetime, half_life: dt.timedelta = HALF_LIFE) -> float:
    """What a post's events still weigh at `at`."""
    return 0.0 if heat == COLD else 2.0 ** (heat - ages(at, half_life))


class Hottest:
    """The hottest of many posts, kept up to date a post at a time; the others are not looked at.

    A post that was left behind in the ranking is at most as hot as the first of those (the floor) until something happens to it, and then it
    is `put` again; a post that cools below the floor is left behind too.

    Args:
        posts: to begin with.
        reserve: how many are kept, and before they are thinned out twice as many; at least as many as are ever asked for.
    """

    def __init__(self, posts: Iterable[Post] = (), *, reserve: int = RESERVE) -> None:
        self._reserve = reserve
        self._ranks: dict[str, tuple[float, str]] = {}
        self._floor: tuple[float, str] | None = None
        """The best rank of those that were left behind; None when none was."""
        for post in posts:
            self.put(post)

    def put(self, post: Post) -> None:
        """Something happened to a post."""
        if post.deleted:
            self._ranks.pop(post.post_id, None)
            return
        rank = (-post.heat, post.post_id)
        if self._floor is not None and rank >= self._floor:
            self._ranks.pop(post.post_id, None)
            return
        self._ranks[post.post_id] = rank
        if len(self._ranks) > 2 * self._reserve:
            kept = heapq.nsmallest(self._reserve + 1, self._ranks.values())
            self._floor = kept.pop()
            self._ranks = {rank[1]: rank for rank in kept}

    def top(self, count: int) -> list[str] | None:
        """The ids of the hottest, hottest first, of two equally hot ones the one that sorts first; None when so many were deleted or
        have cooled that the ranking has to be made again from all posts."""
        if self._floor is not None and len(self._ranks) < count:
            return None
        return [post_id for _, post_id in heapq.nsmallest(count, self._ranks.values())]
