"""Any topic into an analytics store of Parquet files, exactly once.

    python -m busway_spark.jobs.topic_to_parquet --topic movieflix.watched --out store --until-end

What lives here: events as columns, what could not be decoded beside them. What does not: reading and decoding (`topics`, `avro`).

`OUT/<topic>` holds the events, each field a column, with `_key`, `_partition`, `_offset`, `_timestamp`, `_deleted` and `_schema_id`.
`OUT/<topic>_rejected` holds records that are no events of the topic, as they came, with the reason in `error`: nothing disappears.
The checkpoints are beside them in `OUT/_checkpoints`; a job that is killed goes on from there, and no row is written twice.
"""

import argparse
import asyncio
import sys
from pathlib import Path

try:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
    from pyspark.sql.streaming import StreamingQuery
except ImportError as missing:
    raise SystemExit(f"{missing}: pip install 'busway[spark]'") from None

from busway import Admin, BuswayError
from busway_spark.jars import JarsMissing
from busway_spark.session import JavaMissing, session
from busway_spark.topics import NoSchema, schemas_of, stream_topic


def transform(decoded: DataFrame) -> DataFrame:
    """The rows of the store: decoded events and tombstones.

    Args:
        decoded: as `stream_topic` and `read_topic` return it.
    """
    return decoded.where(F.col("error").isNull()).select(
        "event.*",
        F.col("key").cast("string").alias("_key"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("deleted").alias("_deleted"),
        F.col("schema_id").alias("_schema_id"),
    )


def rejected(decoded: DataFrame) -> DataFrame:
    """The rows that could not be decoded, as they came, with the reason."""
    return decoded.where(F.col("error").isNotNull()).select(
        "error", "schema_id", "topic", "partition", "offset", "timestamp", "key", "value"
    )


def start(rows: DataFrame, out: Path, name: str, *, until_end: bool) -> StreamingQuery:
    """Write rows into `OUT/<name>`, to what is the end now or for ever."""
    writer = (
        rows.writeStream.format("parquet")
        .queryName(name)
        .option("checkpointLocation", str(out / "_checkpoints" / name))
        .option("path", str(out / name))
        .outputMode("append")
    )
    writer = writer.trigger(availableNow=True) if until_end else writer.trigger(processingTime="5 seconds")
    return writer.start()


async def _check_topic(bootstrap_servers: str, topic: str) -> None:
    async with Admin(bootstrap_servers) as admin:
        await admin.describe_topics([topic])


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    parser = argparse.ArgumentParser(prog="topic_to_parquet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topic", required=True)
    parser.add_argument("--out", required=True, type=Path, help="folder of the analytics store")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--registry", default="http://localhost:8081")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--until-end", action="store_true", help="stop at what is the end of the topic now")
    given = parser.parse_args(arguments)
    try:
        # Asked before a JVM is started for nothing, and before Spark waits for ever for a broker that is not there.
        schemas_of(given.registry, given.topic)
        asyncio.run(_check_topic(given.bootstrap_servers, given.topic))
        spark = session(f"{given.topic} to parquet", master=given.master)
        decoded = stream_topic(
            spark, given.topic, bootstrap_servers=given.bootstrap_servers, schema_registry=given.registry
        )
        queries = [
            start(transform(decoded), given.out, given.topic, until_end=given.until_end),
            start(rejected(decoded), given.out, f"{given.topic}_rejected", until_end=given.until_end),
        ]
        for query in queries:
            query.awaitTermination()
            rows = sum(one.numInputRows for one in query.recentProgress)
            sys.stdout.write(f"{query.name}: read {rows} records of {given.topic} into {given.out / query.name}\n")
    except (JarsMissing, JavaMissing, NoSchema, BuswayError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
