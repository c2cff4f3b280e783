"""Recommendations: alternating least squares on all that viewers watched and rated, published as events.

    busway spark movieflix.jobs.train --until-end         # once
    busway spark movieflix.jobs.train --every 300         # again and again

Here: watch events → preferences → a model, and how good it is.
Not here: the order in which a model is published (`movieflix.model`), scores (`movieflix.recommend`).

The vectors explain what is left of the stars beside each movie's average. A first training leaves out a tenth of the preferences, by
the hash of viewer and movie, and tells its root mean square error there beside that of the mean of all stars; the model that is
published is then trained on everything.
"""

import argparse
import asyncio
import datetime as dt
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.ml.recommendation import ALS, ALSModel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway import App, BuswayError
from busway_spark.job import Job, run_job
from movieflix import model, recommend, taste
from movieflix.events import Complete, MovieFactors
from movieflix.model import publish

TOPIC: Final = "movieflix.watched"
RANK: Final = 8
ITERATIONS: Final = 5
REGULARISATION: Final = 0.1
"""The best of 0.02 to 0.5 on what was held out of the MovieLens sample: less explains chance, more explains nothing."""
PULL: Final = 5.0
"""So many viewers of the mean opinion are added to each movie's average: one viewer's five stars make no best movie."""
HELD_OUT: Final = 0.1
EVERY_S: Final = 60.0
_SEED: Final = 1
_BUCKETS: Final = 1000


class TooFew(BuswayError):
    """There is not enough to train on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model before it has a version.

    Attributes:
        complete: its end.
        movies: of it.
        viewers: user_id and features, as Spark's model has them; for comparison, they are not published.
    """

    complete: Complete
    movies: list[MovieFactors]
    viewers: DataFrame


def transform(watched: DataFrame) -> DataFrame:
    """What viewers think: user_id, movie_id, stars; the rule of `movieflix.taste.stars`.

    Args:
        watched: as `read_topic` and `stream_topic` return it. What is no event, or cannot be (`movieflix.domain.check`), counts nothing.
    """
    possible = (
        F.col("error").isNull()
        & ~F.col("deleted")
        & (F.col("event.length_s") > 0)
        & F.col("event.position_s").between(0, F.col("event.length_s"))
        & (F.col("event.played_s") >= 0)
        & (F.col("event.rating").isNull() | F.col("event.rating").between(taste.WORST_STARS, taste.BEST_STARS))
    )
    rated = F.when(F.col("rating").isNotNull(), F.col("offset"))
    seen = (
        watched.where(possible)
        .select("event.*", "offset")
        .groupBy("user_id", "movie_id")
        .agg(
            F.max_by("rating", rated).alias("rating"),
            F.max(F.col("position_s") / F.col("length_s")).alias("share"),
            F.max(F.col("action") == "STOPPED").alias("stopped"),
        )
    )
    implied = F.when(F.col("stopped"), taste.WORST_STARS + (taste.BEST_STARS - taste.WORST_STARS) * F.col("share"))
    return seen.select("user_id", "movie_id", F.coalesce("rating", implied).alias("stars")).where("stars is not null")


def averages(preferences: DataFrame) -> DataFrame:
    """movie_id, average (pulled towards the mean), viewers."""
    mean = preferences.agg(F.avg("stars")).first()[0]
    return preferences.groupBy("movie_id").agg(
        ((F.sum("stars") + PULL * mean) / (F.count("*") + PULL)).alias("average"), F.count("*").alias("viewers")
    )


def fit(preferences: DataFrame, average: DataFrame) -> ALSModel:
    """ALS on what is left of the stars beside the movie's average, from a fixed seed."""
    left = preferences.join(average, "movie_id").select(
        "user_id", "movie_id", (F.col("stars") - F.col("average")).alias("left")
    )
    blocks = left.sparkSession.sparkContext.defaultParallelism
    als = ALS(
        rank=RANK,
        maxIter=ITERATIONS,
        regParam=REGULARISATION,
        userCol="user_id",
        itemCol="movie_id",
        ratingCol="left",
        seed=_SEED,
        numUserBlocks=blocks,
        numItemBlocks=blocks,
        coldStartStrategy="nan",
    )
    return als.fit(left)


def quality(preferences: DataFrame) -> tuple[float, float, int]:
    """Root mean square error on what was held out, that of the mean, and how many were."""
    bucket = F.pmod(F.xxhash64("user_id", "movie_id"), F.lit(_BUCKETS))
    known = preferences.where(bucket >= HELD_OUT * _BUCKETS).cache()
    asked = preferences.where(bucket < HELD_OUT * _BUCKETS)
    try:
        mean = known.agg(F.avg("stars")).first()[0]
        if mean is None:
            raise TooFew("all preferences were held out; there are too few to train on")
        average = averages(known)
        guess = F.coalesce("average", F.lit(mean)) + F.coalesce(F.nanvl("prediction", F.lit(0.0)), F.lit(0.0))
        scored = fit(known, average).transform(asked).join(average, "movie_id", "left")
        bounded = F.least(F.greatest(guess, F.lit(taste.WORST_STARS)), F.lit(taste.BEST_STARS))
        row = scored.agg(
            F.sqrt(F.avg(F.pow(F.col("stars") - bounded, 2))).alias("rmse"),
            F.sqrt(F.avg(F.pow(F.col("stars") - mean, 2))).alias("baseline"),
            F.count("*").alias("count"),
        ).first()
        return row["rmse"] or 0.0, row["baseline"] or 0.0, row["count"]
    finally:
        known.unpersist()


def train(preferences: DataFrame, at: dt.datetime) -> Trained:
    """The model of these preferences.

    Raises:
        TooFew: there are none.
    """
    preferences = preferences.cache()
    try:
        counts = preferences.agg(F.count("*").alias("rows"), F.count_distinct("user_id").alias("viewers")).first()
        if not counts["rows"]:
            raise TooFew(f"{TOPIC} holds no preferences yet: nobody has rated or stopped a movie")
        rmse, baseline, held_out = quality(preferences)
        average = averages(preferences)
        fitted = fit(preferences, average)
        rows = average.join(fitted.itemFactors, average.movie_id == fitted.itemFactors.id).collect()
        movies = [
            MovieFactors(
                movie_id=row["movie_id"],
                average=row["average"],
                viewers=row["viewers"],
                factors=[float(factor) for factor in row["features"]],
            )
            for row in rows
        ]
        complete = Complete(
            movies=len(movies),
            checksum=recommend.checksum(movies),
            rank=RANK,
            regularisation=REGULARISATION,
            preferences=counts["rows"],
            viewers=counts["viewers"],
            rmse=rmse,
            baseline_rmse=baseline,
            held_out=held_out,
            trained_at=at,
        )
        viewers = fitted.userFactors.select(F.col("id").alias("user_id"), "features")
        return Trained(complete=complete, movies=movies, viewers=viewers)
    finally:
        preferences.unpersist()


async def send(bootstrap_servers: str, schema_registry: str, trained: Trained) -> tuple[int, int]:
    """Publish it; returns its version and how many older records went."""
    app = App("movieflix-train", bootstrap_servers, schema_registry)
    topic = model.declare(app)
    version = int(trained.complete.trained_at.timestamp() * 1000)
    async with app:
        return version, await publish(app, topic, version, trained.complete, trained.movies)


def work(job: Job) -> None:
    """Train and publish once, or every so often."""
    # As many as there are cores: two hundred of Spark's default would be all overhead for what a model is trained on.
    job.spark.conf.set("spark.sql.shuffle.partitions", job.spark.sparkContext.defaultParallelism)
    while True:
        begun = time.monotonic()
        trained = train(transform(job.read(TOPIC)), dt.datetime.now(dt.UTC))
        version, gone = asyncio.run(send(job.given.bootstrap_servers, job.given.registry, trained))
        end = trained.complete
        sys.stdout.write(
            f"model {version}: {end.movies} movies, rank {end.rank}, from {end.preferences} preferences of {end.viewers} viewers; "
            f"RMSE {end.rmse:.3f} on {end.held_out} held out, the mean has {end.baseline_rmse:.3f}; "
            f"{gone} older records taken away; {time.monotonic() - begun:.1f} s\n"
        )
        sys.stdout.flush()
        if job.given.until_end:
            return
        time.sleep(max(job.given.every - (time.monotonic() - begun), 0))


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="S", help="train every S seconds; default 60")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("movieflix-train", __doc__, argv, work, topics=lambda given: [TOPIC], add_arguments=_arguments)


if __name__ == "__main__":
    sys.exit(main())
