"""The Spark jobs: their rows by hand, and the totals equal to those of the service."""

import asyncio
import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pytest
from mysocialmedia import generate, service, trending
from mysocialmedia.events import Activity, Kind

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]
NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


def decoded(spark: Any, log: list[Activity]) -> Any:
    """Activities as `read_topic` returns them, all in one partition."""
    rows = [
        (
            (activity.kind.value, activity.post_id, activity.user_id, activity.at, activity.comment_id, activity.text),
            None, False, activity.post_id.encode(), offset, NOON,
        )
        for offset, activity in enumerate(log)
    ]  # fmt: skip
    event = "struct<kind:string,post_id:string,user_id:string,at:timestamp,comment_id:string,text:string>"
    columns = f"event {event}, error string, deleted boolean, key binary, offset long, timestamp timestamp"
    return spark.createDataFrame(rows, columns)


def act(kind: Kind, user: str, *, post: str = "p", minute: float = 0.0, comment: str | None = "c") -> Activity:
    """An activity with a text."""
    at = NOON + dt.timedelta(minutes=minute)
    return Activity(kind=kind, post_id=post, user_id=user, at=at, text="text", comment_id=comment)


def test_totals_by_definition(spark: Any) -> None:
    """What comes before the post or after its end does not count, nor does what makes no sense; the last word of each user does."""
    from mysocialmedia.jobs import activities, totals

    log = [
        act(Kind.LIKED, "early"), act(Kind.POSTED, "a"), act(Kind.POSTED, "b"), act(Kind.LIKED, "u"),
        act(Kind.LIKED, "u"), act(Kind.LIKED, "v"), act(Kind.UNLIKED, "v"), act(Kind.COMMENTED, "u"),
        act(Kind.COMMENTED, "v"), act(Kind.COMMENT_DELETED, "v"), act(Kind.DELETED, "b"),
        act(Kind.LIKED, "x/y"), act(Kind.COMMENTED, "x", comment=None), act(Kind.LIKED, "z", minute=6),
        act(Kind.POSTED, "a", post="q"), act(Kind.LIKED, "u", post="q"), act(Kind.DELETED, "a", post="q"),
        act(Kind.UNLIKED, "u", post="q"), act(Kind.POSTED, "a", post="r"), act(Kind.LIKED, "u", post="none"),
    ]  # fmt: skip
    rows = totals.transform(activities.possible(decoded(spark, log))).collect()
    assert {(row.post_id, row.user_id, row.likes, row.comments, row.deleted) for row in rows} == {
        ("p", "a", 1, 1, False),
        ("q", "a", 1, 0, True),
        ("r", "a", 0, 0, False),
    }


def test_trending_windows_are_those_of_the_decayed_sums(spark: Any) -> None:
    """Each window's score is that of the live ranking, were it asked at the window's end of what is in it."""
    from mysocialmedia.jobs import activities
    from mysocialmedia.jobs import trending as job

    log = [
        act(Kind.POSTED, "a"),
        act(Kind.UNLIKED, "u"),
        act(Kind.LIKED, "u", minute=4),
        act(Kind.COMMENTED, "u", minute=4.5),
    ]
    late = act(Kind.LIKED, "v", minute=-7)
    rows = job.transform(activities.possible(decoded(spark, [late, *log])), window="10 minutes").collect()
    windows = {row.ends.astimezone(dt.UTC): (row.activities, row.score) for row in rows}
    heat = trending.COLD
    for activity in (log[0], *log[2:]):
        heat = trending.warmed(heat, trending.WEIGHTS[activity.kind], activity.at)
    end = NOON + dt.timedelta(minutes=10)
    assert windows == {
        end: (3, pytest.approx(trending.score(heat, end))),
        NOON: (1, pytest.approx(0.5 ** (7 / 30))),
    }


async def test_the_service_and_spark_count_the_same(spark: Any, tmp_path: Path, capfd: Any) -> None:
    """After a day of activities both say the same of every post; and a stream writes the trending windows that a batch counts, but for
    those that are not over yet."""
    from mysocialmedia.jobs import activities, totals
    from mysocialmedia.jobs import trending as job

    from busway_spark import read_topic

    seconds = itertools.count()
    async with service.app.test() as bus:
        servers = {"bootstrap_servers": str(bus.app.bootstrap_servers), "schema_registry": str(bus.app.schema_registry)}
        async with generate.sender(*servers.values()) as app:
            day = generate.Day(events=6000, posts=50, users=300)
            begun = generate.now() - dt.timedelta(seconds=day.events)
            await generate.run(
                day, app, lambda activity: None, clock=lambda: begun + dt.timedelta(seconds=next(seconds))
            )
        await bus.settle()
        live = {
            (post.post_id, post.user_id, post.likes, post.comments, post.deleted) for post in service.posts.values()
        }
        arguments = ["-b", servers["bootstrap_servers"], "-r", servers["schema_registry"], "--out", str(tmp_path)]

        def count() -> list[set[Any]]:
            assert totals.main(arguments) == 0
            assert job.main([*arguments, "--until-end"]) == 0
            batch = job.transform(activities.possible(read_topic(spark, activities.TOPIC, **servers)))
            stored = [spark.read.parquet(str(tmp_path / name)) for name in ("totals", "trending")]
            return [{rounded(row) for row in frame.collect()} for frame in (*stored, batch)]

        counted, streamed, batched = await asyncio.to_thread(count)
    assert counted == live
    assert f"{sum(not row[-1] for row in live)} posts" in capfd.readouterr().out
    ends = sorted({row[1] for row in batched})
    over = [end for end in ends if end.timestamp() <= begun.timestamp() + day.events - 120]
    assert len(over) >= 8
    assert streamed == {row for row in batched if row[1] in over}


def rounded(row: Any) -> tuple[Any, ...]:
    """Sums of floats in another order differ in their last digits."""
    return tuple(round(value, 6) if isinstance(value, float) else value for value in row)
