"""What was trending in each stretch of the day: decayed counts of every post in event-time windows.

    busway spark mysocialmedia.jobs.trending --out store --until-end

Here: the windows, the same for a batch and a stream.
Not here: what is trending this second (`mysocialmedia.trending`).

A stream writes a window once its end lies `WATERMARK` behind the newest activity: what comes later than that is not in it any more.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, run_job
from mysocialmedia import trending
from mysocialmedia.jobs.activities import TOPIC, possible

WINDOW: Final = "10 minutes"
WATERMARK: Final = "2 minutes"


def transform(
    activities: DataFrame, *, window: str = WINDOW, half_life_s: float = trending.HALF_LIFE.total_seconds()
) -> DataFrame:
    """begins, ends, post_id, activities, score of each post in each window: its score as of the window's end, from what is in it.

    Args:
        activities: as `possible` returns them.
        window: how long, in Spark's words.
        half_life_s: of what warms a post.
    """
    weight = F.lit(0.0)
    for kind, value in trending.WEIGHTS.items():
        weight = F.when(F.col("kind") == kind.value, F.lit(value)).otherwise(weight)
    age_s = F.unix_micros("ends") / 1e6 - F.unix_micros("at") / 1e6
    return (
        activities.withWatermark("at", WATERMARK)
        .withColumn("within", F.window("at", window))
        .withColumn("ends", F.col("within.end"))
        .withColumn("weighs", weight * F.pow(F.lit(0.5), age_s / half_life_s))
        .where(F.col("weighs") > 0)
        .groupBy("within", "post_id")
        .agg(F.count("*").alias("activities"), F.sum("weighs").alias("score"))
        .select(
            F.col("within.start").alias("begins"), F.col("within.end").alias("ends"), "post_id", "activities", "score"
        )
    )


def work(job: Job) -> None:
    """One stream, into one table."""

    def start() -> list[StreamingQuery | None]:
        rows = transform(possible(job.stream(TOPIC)), window=job.given.window, half_life_s=job.given.half_life_s)
        return [job.store(rows, "trending")]

    job.run(start, topics=[TOPIC])


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", default=WINDOW, help=f"length of a window; default {WINDOW}")
    parser.add_argument("--half-life-s", type=float, default=trending.HALF_LIFE.total_seconds())


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("trending", __doc__, argv, work, topics=lambda given: [TOPIC], add_arguments=_arguments)


if __name__ == "__main__":
    sys.exit(main())
