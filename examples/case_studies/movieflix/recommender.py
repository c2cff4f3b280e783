"""What the service recommends: the model that it serves, and who is to hear of a change.

Here: following the topic of the model, swapping it whole, listeners.
Not here: scores (`recommend`), records (`model`).

The next model is put together beside the one that is served, in a thread; then one assignment swaps them. A version that is not whole is
logged and never served, and the one before goes on.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

from busway import Extension, GlobalTable, RunningService, Table
from busway.web import Feed
from movieflix import model, recommend
from movieflix.events import ModelPart, Taste

logger = logging.getLogger("movieflix")
CHANGES_MOST: Final = 10_000
"""Records of the model that wait; when more came at once, all rows are looked at."""
POPULAR_EVERY_S: Final = 1.0
"""Without a model, what is popular is counted again that often, at most."""
PUSHED: Final = 10
"""Recommendations in a push."""


class Recommender(Extension):
    """Recommendations by the newest whole model.

    Args:
        rows: the records of the model.
        tastes: of the viewers whom this instance has.
    """

    def __init__(self, rows: GlobalTable[str, ModelPart], tastes: Table[int, Taste]) -> None:
        self.served: recommend.Model | None = None
        """Replaced, never changed."""
        self._rows = rows
        self._tastes = tastes
        self._swapped = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._feeds: dict[int, Feed[recommend.Recommendations]] = {}
        self._listeners: Counter[int] = Counter()
        self._stack = contextlib.ExitStack()
        self._popular: tuple[recommend.Recommendation, ...] = ()
        self._popular_at = float("-inf")

    def next_of(self, user_id: int, count: int = PUSHED) -> recommend.Recommendations:
        """What the viewer may see next; by popularity for an unknown viewer."""
        taste = self._tastes.get(user_id) or Taste(user_id=user_id)
        if self.served is not None:
            return recommend.recommend(self.served, taste, count)
        seen = {seen.movie_id for seen in taste.seen}
        movies = tuple(popular for popular in self._popular_now() if popular.movie_id not in seen)[:count]
        return recommend.Recommendations(user_id=user_id, version=None, by="popularity", movies=movies)

    def _popular_now(self) -> tuple[recommend.Recommendation, ...]:
        now = asyncio.get_running_loop().time()
        if now - self._popular_at >= POPULAR_EVERY_S:
            self._popular, self._popular_at = recommend.popularity(self._tastes.values()), now
        return self._popular

    def changed(self, user_id: int) -> None:
        """A viewer's taste has changed: notify the listeners for their recommendations."""
        if (feed := self._feeds.get(user_id)) is not None:
            feed.put(self.next_of(user_id))

    @contextlib.contextmanager
    def listening(self, user_id: int) -> "Iterator[asyncio.Queue[recommend.Recommendations]]":
        """A viewer's recommendations from now on, whenever they change."""
        self._listeners[user_id] += 1
        try:
            with self._feeds.setdefault(user_id, Feed()).listening() as queue:
                yield queue
        finally:
            self._listeners[user_id] -= 1
            if not self._listeners[user_id]:
                del self._feeds[user_id], self._listeners[user_id]

    async def serves(self, version: int) -> None:
        """Returns when a model of at least this version is served."""
        while self.served is None or self.served.version < version:
            self._swapped.clear()
            await self._swapped.wait()

    # What the app does

    async def starting(self, app: RunningService) -> None:
        """The rows are there, as the table was extended before: serve the newest whole model, then follow."""
        self._swapped = asyncio.Event()  # of the event loop that the app starts in, whichever an earlier one did
        queue = self._stack.enter_context(self._rows.changes(CHANGES_MOST))
        await self._load()
        self._following = asyncio.ensure_future(self._follow(queue))

    async def stopped(self, app: RunningService) -> None:
        """Serve none."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        self._stack.close()
        self.served = None

    async def _follow(self, queue: "asyncio.Queue[tuple[str, ModelPart | None]]") -> None:
        while True:
            changes = [(await queue.get())[1]]
            while not queue.empty():
                changes.append(queue.get_nowait()[1])
            if len(changes) >= CHANGES_MOST or any(part and part.complete for part in changes):
                await self._load()

    async def _load(self) -> None:
        above = self.served.version if self.served is not None else -1
        loaded, problems = await asyncio.to_thread(model.newest, dict(self._rows), above=above)
        for problem in problems:
            logger.error("%s; it is not served", problem)
        if loaded is None or (self.served is not None and loaded.version <= self.served.version):
            return
        self.served = loaded
        self._swapped.set()
        logger.info("model %d is served: %d movies", loaded.version, loaded.complete.movies)
        for user_id in list(self._feeds):
            self.changed(user_id)
