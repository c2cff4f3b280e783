"""The Spark jobs on a real bus: preferences, training, publishing, the store."""

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.parts import Parts
from movieflix import domain, model, ratings, recommend, taste
from movieflix.events import Action, ModelPart, Taste, Watched

from busway import App

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A bus and a registry in a process, with the extract's events in `movieflix.watched`, and some that cannot be."""
    loop = asyncio.new_event_loop()
    parts = Parts(tmp_path_factory.mktemp("bus"))
    loop.run_until_complete(parts.start_bus())
    loop.run_until_complete(_send(parts))
    yield parts.bootstrap_servers, parts.schema_registry
    loop.run_until_complete(parts.__aexit__())
    loop.close()


async def _send(parts: Parts) -> None:
    app = App("devices", parts.bootstrap_servers, parts.schema_registry)
    watched = app.topic("movieflix.watched", key=int, value=Watched, partitions=4)
    async with app:
        for event in events():
            await watched.send_soon(event, event.user_id)


def events() -> list[Watched]:
    """Of the extract; then of a viewer who says more than stars at the end of a movie, and what cannot be."""
    viewings = list(ratings.viewings(ratings.read(ratings.EXTRACT)))
    for movie, action, position_s, rating in (
        (1, Action.PLAYING, 50, None),
        (2, Action.STOPPED, 50, None),
        (3, Action.STOPPED, 90, 1.0),
        (3, Action.PLAYING, 10, None),
        (3, Action.PLAYING, 10, 2.5),
        (4, Action.STOPPED, 200, 5.0),
        (5, Action.STOPPED, 50, 9.0),
    ):
        viewings.append(
            Watched(
                user_id=900, movie_id=movie, action=action, position_s=position_s, length_s=100, played_s=1,
                device="tv", at=AT, rating=rating,
            )
        )  # fmt: skip
    return viewings


def tastes() -> dict[int, Taste]:
    """What the service makes of those events."""
    tastes_of_users: dict[int, Taste] = {}
    for offset, event in enumerate(events()):
        try:
            before = tastes_of_users.get(event.user_id) or Taste(user_id=event.user_id)
            tastes_of_users[event.user_id] = taste.apply(before, event, offset)
        except domain.Impossible:
            continue
    return tastes_of_users


def arguments(servers: tuple[str, str]) -> list[str]:
    """As a job takes them."""
    return ["--bootstrap-servers", servers[0], "--registry", servers[1], "--until-end"]


def test_the_job_and_the_service_mean_the_same_by_a_preference(spark: Any, servers: tuple[str, str]) -> None:
    """The rule in columns gives what the rule on events gives, for stars, shares, and events that cannot be."""
    from movieflix.jobs import train

    from busway_spark import read_topic

    frame = read_topic(spark, train.TOPIC, bootstrap_servers=servers[0], schema_registry=servers[1])
    transformed = {(row["user_id"], row["movie_id"]): row["stars"] for row in train.transform(frame).collect()}
    wanted = {
        (user, movie): stars
        for user, user_taste in tastes().items()
        for movie, stars in taste.preferences(user_taste).items()
    }
    assert transformed.keys() == wanted.keys()
    assert all(transformed[key] == pytest.approx(stars) for key, stars in wanted.items())
    assert {movie: stars for (user, movie), stars in transformed.items() if user == 900} == {2: 3.0, 3: 2.5}


def test_fold_in_is_what_spark_solved_for_each_viewer(spark: Any) -> None:
    """The service's vector of a viewer equals Spark's, and so does the ranking of all movies; the model beats the mean."""
    from movieflix.jobs import train

    known = [(rating.user_id, rating.movie_id, rating.stars) for rating in ratings.read(ratings.source())]
    frame = spark.createDataFrame(known, "user_id bigint, movie_id bigint, stars double")
    trained = train.train(frame, AT)
    fitted = recommend.assemble(1, trained.complete, trained.movies)
    stars: dict[int, dict[int, float]] = {}
    for user, movie, star in known:
        stars.setdefault(user, {})[movie] = star
    theirs = {row["user_id"]: np.array(row["features"]) for row in trained.viewers.collect()}
    assert theirs.keys() == stars.keys()
    for user, preferences in stars.items():
        own_factors = recommend.fold_in(fitted, preferences)
        np.testing.assert_allclose(own_factors, theirs[user], rtol=1e-3, atol=1e-4)
        ours, spark_s = (fitted.averages + fitted.factors @ vector for vector in (own_factors, theirs[user]))
        order = np.argsort(-ours)
        assert np.all(np.diff(spark_s[order]) <= 1e-4), f"viewer {user} is given another ranking"
    assert trained.complete.rmse < trained.complete.baseline_rmse


def test_the_jobs_publish_a_model_and_fill_the_store(spark: Any, servers: tuple[str, str], tmp_path: Path) -> None:
    """A second training takes the first one's records away; the store has every event, and as Parquet and as Delta, and what is run again adds nothing."""
    from movieflix.jobs import store, train

    def rows() -> dict[str, ModelPart]:
        async def read() -> dict[str, ModelPart]:
            app = App("reader", *servers)
            topic = model.declare(app)
            async with app:
                there = {record.key: record.value async for record in app.read(topic)}
            return {key: part for key, part in there.items() if key is not None and part is not None}

        return asyncio.run(read())

    versions = []
    for _ in range(2):
        assert train.main(arguments(servers)) == 0
        served, problems = model.newest(rows())
        assert (problems, {part.version for part in rows().values()}) == ([], {served.version if served else 0})
        versions.append(served.version if served else 0)
    assert versions[0] < versions[1]
    for kind in ("parquet", "delta", "delta"):
        out = tmp_path / kind
        assert store.main([*arguments(servers), "--out", str(out), "--format", kind]) == 0
        stored = spark.read.format(kind).load(str(out / "movieflix.watched"))
        assert stored.count() == len(events()) == stored.select("_partition", "_offset").distinct().count()
        models = spark.read.format(kind).load(str(out / "movieflix.model"))
        assert models.where("complete is not null").select("complete.rank").collect()[0][0] == train.RANK
    assert spark.sql(f"DESCRIBE HISTORY delta.`{out / 'movieflix.watched'}`").count() == 1
