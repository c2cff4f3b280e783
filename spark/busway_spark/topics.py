"""Topics as DataFrames of typed events.

Here: reading as a batch and as a stream, by either source.
Not here: decoding (`avro`), writing (`write`), restarts for new schemas (`supervise`).

Spark commits no offsets to a consumer group; a stream's position is in its checkpoint. Columns: `event` (struct of the
reader's fields; null if not decoded), `schema_id`, `error` (null, or why the value was not decoded), `deleted` (a
tombstone), and the record's `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `headers`.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, Literal, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway import Admin, BuswayError, SecurityOptions
from busway_spark.avro import Decoder, OnError, OnUnknown, decode_avro
from busway_spark.java_options import java_options
from busway_spark.offsets import Position, position_options
from busway_spark.schemas import Reader, Schemas, schemas_of
from busway_spark.security import checking_security, is_security_option

Source = Literal["kafka", "busway"]
Isolation = Literal["read_committed", "read_uncommitted"]
_SOURCE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
DEFAULT_SOURCE: Final[Source] = "busway"
"""The faster one, see spark/README.md; it needs no jar."""


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str,
    schema_registry: str,
    start: Position = "earliest",
    end: Position = "latest",
    subject: str | None = None,
    reader: Reader = None,
    isolation: Isolation = "read_committed",
    on_error: OnError = "keep",
    min_partitions: int | None = None,
    source: Source | None = None,
    kafka_options: Mapping[str, str] | None = None,
    decoder: Decoder | None = None,
) -> DataFrame:
    """Read a topic's current events.

    Args:
        bootstrap_servers: `host:port`, several with commas.
        start, end: earliest, latest, a time (the first record at or after it), or offsets by partition.
        subject: of the schemas; by default `<topic>-value`.
        reader: reader schema of all rows: the newest, a version's number, JSON text or an event class.
        isolation: whether records of open and aborted transactions are omitted.
        on_error: keep undecodable records, with the reason in `error`, or fail at the first.
        min_partitions: of tasks; partitions are split for it.
        source: Spark's Kafka source or Busway's; the rows are equal.
        kafka_options: TLS and SASL of either source (`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`), and further options of
            Spark's Kafka source, which is the default if any are given.
        decoder: the JVM's or Python's; by default the JVM's if present.

    Raises:
        NoSchema, NoColumns: no usable reader schema.
        RegistryUnreachable, ConnectionFailed: no answer.
        BrokerError: no such topic.
        NotServed: other `kafka_options` than TLS and SASL for Busway's source.
        BadProperties: TLS or SASL that the source lacks, such as Kerberos in Busway's, or a key file apart from the
            certificate in Spark's.
    """
    source, further = _source(source, kafka_options)
    schemas = _prepared(topic, bootstrap_servers, schema_registry, subject, reader, kafka_options=further)
    options = _options(topic, bootstrap_servers, isolation) | position_options(start, end, topic) | further
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    rows = spark.read.format(source).options(**options).load()
    return _events(rows, schemas, on_error=on_error, decoder=decoder)


def stream_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str,
    schema_registry: str,
    start: Position = "earliest",
    max_offsets_per_trigger: int | None = None,
    subject: str | None = None,
    reader: Reader = None,
    isolation: Isolation = "read_committed",
    on_error: OnError = "keep",
    on_new_schema: OnUnknown = "stop",
    missing_ids: Collection[int] = (),
    min_partitions: int | None = None,
    source: Source | None = None,
    kafka_options: Mapping[str, str] | None = None,
    decoder: Decoder | None = None,
) -> DataFrame:
    """Read a topic endlessly, as events; other arguments and errors as for `read_topic`.

    Args:
        start: only for a new checkpoint.
        max_offsets_per_trigger: approximate size of a micro-batch.
        on_new_schema: with stop, a schema id unknown when the query was built stops it, so that no record is dropped
            and no new column missed; `supervise.run_stream` then rebuilds it. With keep such records have a reason in
            `error`.
        missing_ids: ids that the registry lacks, from `run_stream`; they never stop the query.
    """
    source, further = _source(source, kafka_options)
    schemas = _prepared(topic, bootstrap_servers, schema_registry, subject, reader, kafka_options=further)
    options = _options(topic, bootstrap_servers, isolation) | position_options(start, None, topic) | further
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    rows = spark.readStream.format(source).options(**options).load()
    return _events(rows, schemas, on_error=on_error, on_unknown=on_new_schema, missing_ids=missing_ids, decoder=decoder)


def rejected(decoded: DataFrame) -> DataFrame:
    """Return undecodable records unchanged, with the reason in `error`."""
    return decoded.where(F.col("error").isNotNull()).select(
        "error", "schema_id", "topic", "partition", "offset", "timestamp", "key", "value"
    )


class NotServed(BuswayError):
    """An option that the chosen source lacks; the text has both."""


def _source(source: Source | None, kafka_options: Mapping[str, str] | None) -> tuple[Source, dict[str, str]]:
    further = dict(kafka_options or {})
    chosen = source or ("kafka" if further else DEFAULT_SOURCE)
    others = [name for name in further if not is_security_option(name)]
    if others and chosen != "kafka":
        raise NotServed(
            f"{', '.join(others)}: options of Spark's Kafka source; the source {chosen} has none, give source='kafka'"
        )
    return chosen, java_options(further) if chosen == "kafka" else further


def _prepared(
    topic: str,
    bootstrap_servers: str,
    schema_registry: str,
    subject: str | None,
    reader: Reader,
    *,
    kafka_options: Mapping[str, str],
) -> Schemas:
    # Asks the broker first: Spark's source would wait for an unreachable one, and report a missing topic as a Java exception.
    if (security := checking_security(kafka_options)) is not None:
        asyncio.run(_check_topic(bootstrap_servers, topic, security))
    return schemas_of(schema_registry, topic, subject=subject, reader=reader)


async def _check_topic(bootstrap_servers: str, topic: str, security: SecurityOptions) -> None:
    async with Admin(bootstrap_servers, security=security) as admin:
        await admin.describe_topics([topic])


def _options(topic: str, bootstrap_servers: str, isolation: Isolation) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
        # Records deleted before they were read are an error.
        "failOnDataLoss": "true",
    }


def _events(
    rows: DataFrame,
    schemas: Schemas,
    *,
    on_error: OnError,
    on_unknown: OnUnknown = "keep",
    missing_ids: Collection[int] = (),
    decoder: Decoder | None,
) -> DataFrame:
    decoded = decode_avro(
        rows.select(*_SOURCE_COLUMNS),
        schemas=schemas,
        on_error=on_error,
        on_unknown=on_unknown,
        missing_ids=missing_ids,
        decoder=decoder,
    )
    return decoded.withColumn("deleted", F.col("value").isNull())
