"""The totals of every post, counted again from all activities: what the service says must equal it exactly.

    busway spark mysocialmedia.jobs.totals --out store

Here: the totals by definition.
Not here: the service's own way to them, an activity at a time (`mysocialmedia.domain`).

It needs the whole topic; where that is kept for a time only, run it on what the `offload` job has stored.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway_spark.job import Job, run_job
from mysocialmedia.jobs.activities import TOPIC, possible


def transform(activities: DataFrame) -> DataFrame:
    """post_id, user_id, likes, comments, deleted of each post.

    A post begins with the first activity that posts it and ends with the first in which its author deletes it. In between the last word
    of each user on a like, and on each comment, decides whether it is there.

    Args:
        activities: as `possible` returns them; all of a post have offsets of the same partition.
    """
    posted = (
        activities.where(F.col("kind") == "POSTED")
        .groupBy("post_id")
        .agg(F.min("offset").alias("begins"), F.min_by("user_id", "offset").alias("author"))
    )
    of_posts = activities.join(posted, "post_id").where(F.col("offset") > F.col("begins"))
    ended = (
        of_posts.where((F.col("kind") == "DELETED") & (F.col("user_id") == F.col("author")))
        .groupBy("post_id")
        .agg(F.min("offset").alias("ends"))
    )
    of_comments = F.col("kind").isin("COMMENTED", "COMMENT_DELETED")
    facts = (
        of_posts.where(of_comments | F.col("kind").isin("LIKED", "UNLIKED"))
        .join(ended, "post_id", "left")
        .where(F.col("ends").isNull() | (F.col("offset") < F.col("ends")))
        .groupBy("post_id", "user_id", of_comments.alias("is_comment"), F.when(of_comments, F.col("comment_id")))
        .agg(F.max_by("kind", "offset").alias("last"))
    )
    counts = facts.groupBy("post_id").agg(
        F.count_if(F.col("last") == "LIKED").alias("likes"), F.count_if(F.col("last") == "COMMENTED").alias("comments")
    )
    return (
        posted.join(counts, "post_id", "left")
        .join(ended, "post_id", "left")
        .select(
            "post_id",
            F.col("author").alias("user_id"),
            F.coalesce("likes", F.lit(0)).alias("likes"),
            F.coalesce("comments", F.lit(0)).alias("comments"),
            F.col("ends").isNotNull().alias("deleted"),
        )
    )


def work(job: Job) -> None:
    """One table of all posts."""
    totals = transform(possible(job.read(TOPIC))).cache()
    sums = totals.where(~F.col("deleted")).agg(F.count("*"), F.sum("likes"), F.sum("comments")).collect()[0]
    job.store(totals, "totals")
    sys.stdout.write(f"totals: {sums[0]} posts, {sums[1] or 0} likes, {sums[2] or 0} comments\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("totals", __doc__, argv, work, topics=lambda given: [TOPIC])


if __name__ == "__main__":
    sys.exit(main())
