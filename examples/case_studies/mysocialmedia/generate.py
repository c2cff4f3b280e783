"""A campaign day: activities at a baseline, then a burst.

Here: which activities come when, always the same under a seed, and what the totals must be.
Not here: sending (`demo`).

    python -m mysocialmedia.generate --events 100000 --burst 20

Posts are picked by Zipf's law: the hottest gets a multiple of all others. Users like, unlike, like again what they like already,
comment, take comments back, and a few posts are deleted; that is what makes counting exactly a task.
"""

import argparse
import asyncio
import bisect
import datetime as dt
import itertools
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kit.load import send_all

from busway import App, BuswayError
from mysocialmedia.events import Activity, Kind

Send = Callable[[Activity], Awaitable["asyncio.Future[Any]"]]
ZIPF: Final = 1.1
_KINDS: Final = {
    Kind.LIKED: 72, Kind.UNLIKED: 8, Kind.COMMENTED: 15, Kind.COMMENT_DELETED: 4, Kind.POSTED: 1
}  # fmt: skip
"""What happens how often, in parts of all."""
_DELETED_EVERY: Final = 5_000
_IN_FLIGHT: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What kind of day it is.

    Attributes:
        events: how many activities.
        posts: how many are there from the beginning.
        users: how many take part.
        per_s: the baseline; 0 for as fast as they are acknowledged.
        burst: how many times the baseline in a burst.
        calm_s, burst_s: how long the baseline and a burst last, in turns.
        seed: the same day under the same seed.
    """

    events: int
    posts: int = 200
    users: int = 20_000
    per_s: float = 0.0
    burst: float = 20.0
    calm_s: float = 20.0
    burst_s: float = 10.0
    seed: int = 1

    def due_s(self) -> Iterator[float]:
        """When each activity is due, in seconds since the beginning."""
        due_s = 0.0
        for _ in range(self.events):
            yield due_s
            if self.per_s:
                bursts = due_s % (self.calm_s + self.burst_s) >= self.calm_s
                due_s += 1 / (self.per_s * (self.burst if bursts else 1.0))

    def activities(self, clock: Callable[[], dt.datetime]) -> Iterator[Activity]:
        """The activities, in their order; `clock` says when each happens."""
        chance = random.Random(self.seed)  # noqa: S311 - a load, not a secret
        weights = list(itertools.accumulate(1 / (rank + 1) ** ZIPF for rank in range(self.posts)))
        kinds, shares = list(_KINDS), list(itertools.accumulate(_KINDS.values()))
        order = chance.sample(range(self.posts), self.posts)  # which post is how popular
        posts = 0
        comments: dict[tuple[str, str], int] = {}
        for number in range(self.events):
            kind = kinds[bisect.bisect(shares, chance.random() * shares[-1])]
            if number < self.posts or kind is Kind.POSTED:
                yield _posted(posts, clock())
                posts += 1
                continue
            rank = bisect.bisect(weights, chance.random() * weights[-1])
            post_id, user_id = _name(order[rank]), f"user-{chance.randrange(self.users)}"
            if number % _DELETED_EVERY == 0:
                gone = order[self.posts // 2 + chance.randrange(self.posts // 2)]
                yield Activity(kind=Kind.DELETED, post_id=_name(gone), user_id=_author(gone), at=clock())
                continue
            comment_id = text = None
            if kind is Kind.COMMENTED:
                written = comments[post_id, user_id] = comments.get((post_id, user_id), 0) + 1
                comment_id, text = f"c{written}", f"Comment {written} on {post_id}"
            elif kind is Kind.COMMENT_DELETED:
                comment_id = f"c{comments.get((post_id, user_id), 1)}"
            yield Activity(kind=kind, post_id=post_id, user_id=user_id, at=clock(), comment_id=comment_id, text=text)


def _name(number: int) -> str:
    return f"post-{number}"


def _author(number: int) -> str:
    return f"author-{number}"


def _posted(number: int, at: dt.datetime) -> Activity:
    return Activity(kind=Kind.POSTED, post_id=_name(number), user_id=_author(number), at=at, text=f"Post {number}")


@dataclass(slots=True)
class Tally:
    """What totals must be, by definition: a set of users for each post's likes, one of ids for its comments.

    Attributes:
        activities: that were noted.
    """

    activities: int = 0
    _likes: dict[str, set[str]] = field(default_factory=dict)
    _comments: dict[str, set[tuple[str, str | None]]] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    def note(self, activity: Activity) -> None:
        """An activity was acknowledged; called in the order of each post."""
        self.activities += 1
        post_id, kind = activity.post_id, activity.kind
        if post_id in self._gone:
            return
        if kind is Kind.POSTED:
            self._likes.setdefault(post_id, set())
            self._comments.setdefault(post_id, set())
        elif kind is Kind.DELETED:
            self._gone.add(post_id)
            del self._likes[post_id], self._comments[post_id]
        elif kind is Kind.LIKED:
            self._likes[post_id].add(activity.user_id)
        elif kind is Kind.UNLIKED:
            self._likes[post_id].discard(activity.user_id)
        elif kind is Kind.COMMENTED:
            self._comments[post_id].add((activity.user_id, activity.comment_id))
        else:
            self._comments[post_id].discard((activity.user_id, activity.comment_id))

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        """Likes and comments of each post that is not deleted."""
        return {post_id: (len(likes), len(self._comments[post_id])) for post_id, likes in self._likes.items()}

    @property
    def deleted(self) -> frozenset[str]:
        """Posts that are."""
        return frozenset(self._gone)


def sender(bootstrap_servers: str, schema_registry: str) -> App:
    """An app that only sends, many at once: a batch may wait a moment to fill."""
    app = App(
        "mysocialmedia-day",
        bootstrap_servers=bootstrap_servers,
        schema_registry=schema_registry,
        producer={"linger_ms": 5},
    )
    app.topic("mysocialmedia.activity", value=Activity, partitions=4)
    return app


def now() -> dt.datetime:
    """The time, in UTC."""
    return dt.datetime.now(dt.UTC)


async def run(
    day: Day,
    app: App,
    acknowledged: Callable[[Activity], object],
    *,
    clock: Callable[[], dt.datetime] = now,
    around: Callable[[Send, int], Send] = lambda send, total: send,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Send a day's activities, each when it is due, or late when the bus says so: no more than a bound wait for it.

    Args:
        day: which.
        app: made by `sender`, running.
        acknowledged: called with each activity that is safe, in the order of each post.
        clock: when each happens, as its device says.
        around: makes of what sends one of so many activities what sends it and does more, such as `kit.faults.KillsInTurn.during`.
        stopped: ends the day early.

    Raises:
        BuswayError: an activity was not acknowledged.
    """
    topic = app.topics["mysocialmedia.activity"]
    due, loop = day.due_s(), asyncio.get_running_loop()
    begun_s = loop.time()

    async def send(activity: Activity) -> "asyncio.Future[Any]":
        if (early_s := begun_s + next(due) - loop.time()) > 0:
            await asyncio.sleep(early_s)
        return await topic.send_soon(activity, key=activity.post_id)

    activities = itertools.takewhile(lambda activity: not stopped(), day.activities(clock))
    return await send_all(activities, around(send, day.events), acknowledged, in_flight=_IN_FLIGHT)


async def _main(day: Day, bootstrap_servers: str, schema_registry: str) -> None:
    tally = Tally()
    async with sender(bootstrap_servers, schema_registry) as app:
        begun_s = asyncio.get_running_loop().time()
        await run(day, app, tally.note)
        took_s = asyncio.get_running_loop().time() - begun_s
    likes, comments = (sum(column) for column in zip(*tally.totals.values(), strict=True))
    sys.stdout.write(
        f"{tally.activities} activities acknowledged in {took_s:.1f} s: {len(tally.totals)} posts, {likes} likes, "
        f"{comments} comments\n"
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m mysocialmedia.generate", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--posts", type=int, default=200)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--per-s", type=float, default=1000.0, help="rate of the baseline; 0 is as fast as possible")
    parser.add_argument("--burst", type=float, default=20.0, help="factor of the baseline in a burst")
    parser.add_argument("--calm-s", type=float, default=20.0, help="duration of the baseline between bursts")
    parser.add_argument("--burst-s", type=float, default=10.0, help="duration of a burst")
    parser.add_argument("--seed", type=int, default=1)
    given = vars(parser.parse_args())
    bootstrap_servers = os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092")
    schema_registry = os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081")
    try:
        asyncio.run(_main(Day(**given), bootstrap_servers, schema_registry))
    except BuswayError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
