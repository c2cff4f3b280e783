"""What is going on right now: the hottest posts, the sums, the pace.

Here: following what the handler changes, and telling it every second to the topic `mysocialmedia.trending` and a few
times a second to the pages that are open.
Not here: what heat is (`trending`), the paths (`http`).

Each instance ranks the posts of its own partitions and writes a row for each. All instances read all rows, and because heats compare
across partitions, each can tell the hottest of all.
"""

import asyncio
import datetime as dt
import heapq
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from busway import BuswayError, Extension, GlobalTable, Table, TopicPartition
from busway.web import Feed
from mysocialmedia import trending
from mysocialmedia.domain import Changes, Wall
from mysocialmedia.events import HotPost, Post, Trending

if TYPE_CHECKING:
    from busway import RunningService

logger = logging.getLogger("mysocialmedia")

TICK_S: Final = 0.25
"""How often pages are updated."""
TICKS_PER_ROW: Final = 4
"""How many times as often as the topic."""
PACES: Final = 240
"""Ticks whose pace is remembered, for a page that opens later: a minute."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """Of one partition: its ranking and its sums over posts that are not deleted."""

    hottest: trending.Hottest
    posts: int = 0
    likes: int = 0
    comments: int = 0
    last_row: Trending = field(default_factory=Trending)
    """The row that was written last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What a page shows.

    Attributes:
        at: in UTC.
        handled: activities since this instance started.
        posts, likes, comments: of the partitions that this instance has.
        paces: activities per second in each of the last ticks, the newest last; all of them in the first message, then one.
        trending: hottest first, each with its score now.
    """

    at: dt.datetime
    handled: int
    posts: int
    likes: int
    comments: int
    paces: list[int]
    trending: list[dict[str, str | int | float]]


class Trends(Extension):
    """Follows the posts of the partitions that this instance has.

    Args:
        posts: all of them.
        rows: where the hottest of each partition are published.
        wall: notified when partitions came or went.
        half_life: of what warms a post.
    """

    def __init__(
        self, posts: Table[str, Post], rows: GlobalTable[int, Trending], wall: Wall, *, half_life: dt.timedelta
    ) -> None:
        self.feed: Feed[Now] = Feed(queue=4)
        """A `Now` for each tick."""
        self.handled = 0
        self._posts = posts
        self._rows = rows
        self._wall = wall
        self._half_life = half_life
        self._standings: dict[int, Standing] = {}
        self._paces: deque[int] = deque(maxlen=PACES)
        self._ticking: asyncio.Task[None] | None = None

    def changed(self, partition: int, changes: Changes, activities: int) -> None:
        """The handler has taken in so many activities of the partition."""
        self.handled += activities
        standing = self._standings[partition]
        standing.posts += changes.live
        standing.likes += changes.likes
        standing.comments += changes.comments
        for post in changes.posts.values():
            standing.hottest.put(post)

    def hottest(self, count: int = trending.TOP) -> list[HotPost]:
        """The hottest posts of all partitions, as fresh as is known here."""
        posts = [self._fresh(post) for row in self._rows.values() for post in row.posts]
        return heapq.nsmallest(
            count, (post for post in posts if post is not None), key=lambda post: (-post.heat, post.post_id)
        )

    def now(self, *, whole: bool) -> Now:
        """What a page shows; `whole` with all paces that are remembered."""
        at = dt.datetime.now(dt.UTC)
        standings = self._standings.values()
        return Now(
            at=at,
            handled=self.handled,
            posts=sum(standing.posts for standing in standings),
            likes=sum(standing.likes for standing in standings),
            comments=sum(standing.comments for standing in standings),
            paces=list(self._paces) if whole else list(self._paces)[-1:],
            trending=[
                {
                    "post_id": hot_post.post_id,
                    "user_id": hot_post.user_id,
                    "text": hot_post.text,
                    "likes": hot_post.likes,
                    "comments": hot_post.comments,
                    "score": round(trending.score(hot_post.heat, at, self._half_life), 1),
                }
                for hot_post in self.hottest()
            ],
        )

    def _fresh(self, hot: HotPost) -> HotPost | None:
        """The post as it is, where this instance has it; None when it was deleted since."""
        post = self._posts.get(hot.post_id)
        return hot if post is None else None if post.deleted else _hot(post)

    # What the app does

    async def starting(self, app: "RunningService") -> None:
        """Begin to tell."""
        self.handled = 0
        self._paces.clear()
        self._ticking = asyncio.get_running_loop().create_task(self._tell(), name="trends")

    async def stopped(self, app: "RunningService") -> None:
        """Tell no more."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
            await asyncio.wait([ticking])
        self._standings.clear()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Rank the posts that were read back."""
        new = {partition.partition for partition in partitions}
        of: dict[int, list[Post]] = {number: [] for number in new}
        for post_id, post in self._posts.items():
            home = self._posts.home(post_id)
            if home is not None and home.partition in new:
                of[home.partition].append(post)
        for number, partition_posts in of.items():
            live = [post for post in partition_posts if not post.deleted]
            self._standings[number] = Standing(
                hottest=trending.Hottest(live),
                posts=len(live),
                likes=sum(post.likes for post in live),
                comments=sum(post.comments for post in live),
            )
        self._wall.stored_anew()
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Others rank them now."""
        for partition in partitions:
            self._standings.pop(partition.partition, None)
        self._wall.stored_anew()

    # Telling

    async def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        last_s, last = loop.time(), self.handled
        while True:
            for _ in range(TICKS_PER_ROW):
                await asyncio.sleep(TICK_S)
                passed_s, last_s = loop.time() - last_s, loop.time()
                self._paces.append(round((self.handled - last) / passed_s))
                last = self.handled
                self.feed.put(self.now(whole=False))
            try:
                await self._write()
            except BuswayError as problem:
                logger.warning("trending posts were not written, the next second brings them: %s", problem)

    async def _write(self) -> None:
        for number, standing in list(self._standings.items()):
            row = Trending(posts=self._top(number, standing))
            if row != standing.last_row:
                await self._rows.put(number, row)
                standing.last_row = row

    def _top(self, number: int, standing: Standing) -> list[HotPost]:
        ids = standing.hottest.top(trending.TOP)
        if ids is None:
            partition_posts = (post for post_id, post in self._posts.items() if _is_in(self._posts, post_id, number))
            standing.hottest = trending.Hottest(partition_posts)
            ids = standing.hottest.top(trending.TOP) or []
        return [_hot(self._posts[post_id]) for post_id in ids if post_id in self._posts]


def _is_in(posts: Table[str, Post], post_id: str, partition: int) -> bool:
    home = posts.home(post_id)
    return home is not None and home.partition == partition


def _hot(post: Post) -> HotPost:
    return HotPost(
        post_id=post.post_id,
        user_id=post.user_id,
        text=post.text,
        likes=post.likes,
        comments=post.comments,
        heat=post.heat,
    )
