"""All topics of MovieFlix into the analytics store, exactly once.

    busway spark movieflix.jobs.store --out store --until-end --format delta

Here: which topics.
Not here: rows, checkpoints and rejects, which are those of `busway spark offload`: each topic gets `OUT/<topic>` and
`OUT/<topic>_rejected`. Topics that no event has been written to yet are passed over; start the job again once they have
some.
"""

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, run_job
from busway_spark.jobs.offload import transform
from busway_spark.schemas import NoSchema, schemas_of
from busway_spark.topics import rejected

TOPICS: Final = ("movieflix.watched", "movieflix.profiles", "movieflix.tastes", "movieflix.model")


def work(job: Job) -> None:
    """Two queries for each topic, so that each is exact by itself. For ever, all run at once; to the end, one topic after the other,
    because a small machine has no room for the workers of all."""
    topics = [topic for topic in TOPICS if _has_events(job, topic)]
    for together in [[topic] for topic in topics] if job.given.until_end else [topics]:
        _store(job, together)


def _store(job: Job, topics: Sequence[str]) -> None:
    def start() -> list[StreamingQuery | None]:
        queries: list[StreamingQuery | None] = []
        for topic in topics:
            decoded = job.stream(topic)
            queries += [job.store(transform(decoded), topic), job.store(rejected(decoded), f"{topic}_rejected")]
        return queries

    for query in job.run(start, topics=topics):
        records = sum(progress.numInputRows for progress in query.recentProgress)
        sys.stdout.write(f"{query.name}: read {records} records\n")


def _has_events(job: Job, topic: str) -> bool:
    try:
        schemas_of(job.given.registry, topic)
    except NoSchema:
        sys.stdout.write(f"{topic}: has no events yet, and is left out\n")
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("movieflix-store", __doc__, argv, work, topics=lambda given: TOPICS[:1])


if __name__ == "__main__":
    sys.exit(main())
