"""Any topic into an analytics store of Parquet or Delta, exactly once.

    busway spark offload --topic movieflix.watched --out store --until-end

Here: events as columns, and undecodable records beside them.
Not here: reading and decoding (`topics`, `avro`).

`OUT/<topic>` has the events, each field a column, with `_key`, `_partition`, `_offset`, `_timestamp`, `_deleted` and
`_schema_id`. The key is text, JSON for an Avro key. `OUT/<topic>_rejected` has undecodable records unchanged, with the
reason in `error`. Checkpoints are in `OUT/_checkpoints`; a killed job continues from there, and no row is written
twice. A field of a new schema version becomes a column from its first event.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, run_job
from busway_spark.keys import key_text
from busway_spark.topics import rejected


def transform(decoded: DataFrame, key: Column | None = None) -> DataFrame:
    """Return the store's rows: decoded events and tombstones.

    Args:
        key: of a row, from `Job.key_text`; by default the key as text.
    """
    return decoded.where(F.col("error").isNull()).select(
        "event.*",
        (key_text({}) if key is None else key).alias("_key"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("deleted").alias("_deleted"),
        F.col("schema_id").alias("_schema_id"),
    )


def work(job: Job) -> None:
    """Write both tables with separate queries and checkpoints: each is exactly-once."""
    topic, given = job.given.topic, job.given
    reader = int(given.reader) if given.reader is not None and given.reader.isdecimal() else given.reader

    def start() -> list[StreamingQuery | None]:
        decoded = job.stream(
            topic, max_offsets_per_trigger=given.max_offsets_per_trigger, subject=given.subject, reader=reader
        )
        return [
            job.store(transform(decoded, job.key_text(topic)), topic),
            job.store(rejected(decoded), f"{topic}_rejected"),
        ]

    for query in job.run(start, topics=[topic], subject=given.subject):
        records = sum(progress.numInputRows for progress in query.recentProgress)
        sys.stdout.write(
            f"{query.name}: looked through {records} records of {topic}; {_what(query.name, topic)} are in {job.place(query.name)}\n"
        )


def _what(name: str, topic: str) -> str:
    return "the events" if name == topic else "those that are no events"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subject", help="subject of the values' schemas; default TOPIC-value")
    parser.add_argument("--reader", help="schema of the rows: a version's number, or JSON; default: the newest")
    parser.add_argument("--max-offsets-per-trigger", type=int, help="approximate records of a micro-batch")


def main(argv: Sequence[str] | None = None) -> int:
    return run_job(
        "offload",
        __doc__,
        argv,
        work,
        topics=lambda given: [given.topic],
        add_arguments=_arguments,
        subject=lambda given: given.subject,
    )


if __name__ == "__main__":
    sys.exit(main())
