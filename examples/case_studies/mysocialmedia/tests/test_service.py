"""The service on a real bus and registry: totals, crashes, dead letters, trending."""

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator

import pytest
from mysocialmedia import service
from mysocialmedia.events import Activity, Kind
from mysocialmedia.generate import Tally
from tests.support.variants import with_variants

from busway import App, DeadLetters, Producer
from busway.testing import TestBus, crash_points

pytestmark = pytest.mark.slow
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


def act(kind: Kind, post: str, user: str = "u1", *, text: str = "text", comment: str = "c") -> Activity:
    """An activity, with a text and a comment's id whether it needs them or not."""
    return Activity(kind=kind, post_id=post, user_id=user, at=NOW, text=text, comment_id=comment)


def make_activities(count: int, seed: int) -> list[Activity]:
    """Posts, and then all that can happen to them, often the same again."""
    chance = random.Random(seed)
    kinds = [Kind.LIKED] * 5 + [Kind.UNLIKED] * 2 + [Kind.COMMENTED] * 2 + [Kind.COMMENT_DELETED]
    posted = [act(Kind.POSTED, f"p{number}", "author") for number in range(12)]
    more = [
        act(
            chance.choice(kinds),
            f"p{chance.randrange(12)}",
            f"u{chance.randrange(20)}",
            comment=f"c{chance.randrange(3)}",
        )
        for _ in range(count)
    ]
    more.insert(count // 2, act(Kind.DELETED, "p11", "author"))
    return posted + more


async def send(activities: list[Activity], tally: Tally | None = None) -> None:
    """Write them all from another app, which no crash of the service reaches, and wait until they are acknowledged."""
    phones = App("phones", service.app.bootstrap_servers, service.app.schema_registry)
    topic = phones.topic(service.activities.name, key=str, value=Activity, partitions=service.PARTITIONS)
    async with phones:
        await asyncio.gather(*[await topic.send_soon(activity, key=activity.post_id) for activity in activities])
    if tally is not None:
        for activity in activities:
            tally.note(activity)


def totals() -> dict[str, tuple[int, int]]:
    """Likes and comments of each post that is not deleted, as the service has them."""
    return {post.post_id: (post.likes, post.comments) for post in service.posts.values() if not post.deleted}


def marked() -> dict[str, tuple[int, int]]:
    """The same, counted from the marks."""
    counts = {post.post_id: [0, 0] for post in service.posts.values() if not post.deleted}
    for key in service.marks:
        counts[key.partition("/")[0]][key.count("/") - 1] += 1
    return {post_id: (likes, comments) for post_id, (likes, comments) in counts.items()}


async def replay_all(bus: TestBus) -> int:
    """`busway dlq replay` for all dead letters of the service; how many."""
    async with DeadLetters(bus.app.bootstrap_servers) as letters:
        (topic,) = await letters.topics("mysocialmedia")
        return len((await letters.replay(topic)).done)


def right(tally: Tally) -> bool:
    """Whether totals, marks and sums are those of the sets."""
    now = service.trends.now(whole=False)
    assert (totals(), marked()) == (tally.totals, tally.totals)
    sums = (len(tally.totals), *(sum(column) for column in zip(*tally.totals.values(), strict=True)))
    assert (now.posts, now.likes, now.comments) == sums
    return True


async def test_totals_are_those_of_the_sets_and_survive_a_restart(bus: TestBus) -> None:
    """With empty memory posts and marks are read back, and the rest is counted on top of them."""
    tally, activities = Tally(), make_activities(600, seed=1)
    await send(activities[:300], tally)
    await bus.settle()
    assert right(tally)
    await bus.restart()
    assert right(tally)
    await send(activities[300:], tally)
    await bus.settle()
    assert right(tally)


@pytest.mark.parametrize("point", with_variants(crash_points(), gate=["before-commit"]))
async def test_a_crash_anywhere_changes_no_total(bus: TestBus, point: str) -> None:
    """Killed at that step of a batch and started again, totals and marks are exact."""
    tally, activities = Tally(), make_activities(400, seed=2)
    await send(activities[:200], tally)
    await bus.settle()
    crash = bus.crash(at=point)
    await send(activities[200:], tally)
    await crash
    await bus.settle()
    assert right(tally)
    await bus.restart()
    assert right(tally)


async def test_a_broker_that_is_killed_under_load_changes_no_total(bus: TestBus) -> None:
    """It comes back on its data; what was acknowledged is counted, once."""
    tally, activities = Tally(), make_activities(1500, seed=4)
    sending = asyncio.ensure_future(send(activities, tally))
    while service.trends.handled < 100:
        await asyncio.sleep(0)
    await bus.crash_broker()
    await sending
    await bus.settle()
    assert right(tally)


async def test_what_cannot_be_is_put_aside_and_counts_after_a_replay(bus: TestBus) -> None:
    """A like before its post, a post deleted by another, a record that is under another key or empty: each alone with its reason, though
    they came in one batch with good ones. Once the post is there its like is replayed and counts."""
    good = [act(Kind.POSTED, "p1", "author"), act(Kind.LIKED, "p1")]
    await send([act(Kind.LIKED, "p2"), *good, act(Kind.DELETED, "p1"), act(Kind.LIKED, "p1", "u/2")])
    await bus.send(service.activities, act(Kind.LIKED, "p1", "u3"), key="p9")
    await bus.send(service.activities, None, key="p1")
    await bus.settle()
    assert totals() == {"p1": (1, 0)}
    reasons = sorted(letter.error.partition(": ")[2][:12] for letter in await bus.dead_letters(service.activities))
    assert reasons == ["key is 'p1';", "key is 'p9';", "post_id is '", "user_id is '", "user_id is '"]
    await send([act(Kind.POSTED, "p2", "author")])
    await bus.settle()
    replayed = await replay_all(bus)
    await bus.settle()
    assert (replayed, totals()) == (5, {"p1": (1, 0), "p2": (1, 0)})


async def test_bytes_that_are_no_activity_are_put_aside(bus: TestBus) -> None:
    """What does not fit the schema goes to the dead letters, and the post counts on."""
    async with Producer(bus.app.bootstrap_servers) as producer:
        await (await producer.send("mysocialmedia.activity", b"no activity", b"p1"))
    await send([act(Kind.POSTED, "p1", "author"), act(Kind.LIKED, "p1")])
    await bus.settle()
    (letter,) = await bus.dead_letters(service.activities)
    assert (letter.error.partition(":")[0], totals()) == ("Undecodable", {"p1": (1, 0)})


async def test_trending_is_told_in_a_topic_and_survives_the_deletion_of_the_hottest(bus: TestBus) -> None:
    """Rows of all partitions merge by heat; a deleted post goes at once."""
    await send(make_activities(300, seed=5))
    await send([act(Kind.LIKED, "p3", f"fan{number}") for number in range(200)])
    await bus.settle()
    with service.hot.changes() as changes:
        while not any(post.post_id == "p3" for post in service.trends.hottest()):
            await changes.get()
    hottest = service.trends.hottest()
    assert hottest[0].post_id == "p3"
    assert [post.heat for post in hottest] == sorted((post.heat for post in hottest), reverse=True)
    await send([act(Kind.DELETED, "p3", "author")])
    await bus.settle()
    assert "p3" not in {post.post_id for post in service.trends.hottest()}
