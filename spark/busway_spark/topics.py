"""Topics as DataFrames: registry-framed Avro through Spark's own Kafka source.

What lives here: which schemas a topic's values were written with, and the source's options. What does not: decoding (`avro`), what is
done with the rows (`jobs`). Spark commits no offsets to a consumer group; a stream's position is in its checkpoint.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway import RegistryClient, RegistryRefused
from busway_spark.avro import decode_avro

_SOURCE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


class NoSchema(RuntimeError):
    """The registry holds no schema for the topic; the text names the subject."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """The versions of a subject: writer schemas by id, and the newest one, which all rows are read as."""

    writers: dict[int, str]
    reader: str


def schemas_of(registry_url: str, topic: str) -> Schemas:
    """The schemas of a topic's values, as they are in the registry now, under the subject `<topic>-value`.

    Raises:
        NoSchema: there are none.
        RegistryUnreachable: no answer.
    """
    return asyncio.run(_schemas(registry_url, f"{topic}-value"))


async def _schemas(registry_url: str, subject: str) -> Schemas:
    async with RegistryClient(registry_url) as registry:
        try:
            numbers = await registry.versions(subject)
        except RegistryRefused as problem:
            raise NoSchema(
                f"{registry_url} has no subject {subject}; write a first event, or register its schema"
            ) from problem
        versions = [await registry.version(subject, number) for number in numbers]
    return Schemas({one.id: one.schema for one in versions}, versions[-1].schema)


def stream_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str,
    schema_registry: str,
    starting_offsets: str = "earliest",
    max_offsets_per_trigger: int | None = None,
) -> DataFrame:
    """A streaming DataFrame of a topic in registry-framed Avro.

    Args:
        spark: see `busway_spark.session.session`.
        topic: its name.
        bootstrap_servers: `host:port`, several with commas.
        schema_registry: its address.
        starting_offsets: earliest, latest, or Spark's JSON; counts only for a new checkpoint.
        max_offsets_per_trigger: how much one micro-batch takes at most.

    Returns:
        Columns `event` (struct of the newest schema's fields; null where there is none), `schema_id`, `error` (null, or why the value
        was not decoded), `deleted` (a tombstone), and the record's `key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
        `headers`. Only committed records.

    Raises:
        NoSchema, RegistryUnreachable: the schemas cannot be had.
    """
    options = _options(topic, bootstrap_servers, starting_offsets)
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    source = spark.readStream.format("kafka").options(**options).load()
    return _decoded(source, schemas_of(schema_registry, topic))


def read_topic(
    spark: SparkSession, topic: str, *, bootstrap_servers: str, schema_registry: str, starting_offsets: str = "earliest"
) -> DataFrame:
    """As `stream_topic`, for what is in the topic now."""
    source = spark.read.format("kafka").options(**_options(topic, bootstrap_servers, starting_offsets)).load()
    return _decoded(source, schemas_of(schema_registry, topic))


def _options(topic: str, bootstrap_servers: str, starting_offsets: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": starting_offsets,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        # Records that were deleted before they were read are an error, not a gap to pass over.
        "failOnDataLoss": "true",
    }


def _decoded(source: DataFrame, schemas: Schemas) -> DataFrame:
    decoded = decode_avro(source.select(*_SOURCE_COLUMNS), writers=schemas.writers, reader=schemas.reader)
    return decoded.withColumn("deleted", F.col("value").isNull())
