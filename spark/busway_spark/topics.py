"""Topics as DataFrames of typed events.

What lives here: reading, as a batch and as a stream, by either source. What does not: decoding (`avro`), writing (`write`), restarting a
stream when a new schema comes (`supervise`). Spark commits no offsets to a consumer group; a stream's position is in its checkpoint.

The columns are the same for both: `event` (struct of the reader's fields; null where there is none), `schema_id`, `error` (null, or why the
value was not decoded), `deleted` (a tombstone), and the record's `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `headers`.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, Literal, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway import Admin, BuswayError
from busway_spark.avro import Decoder, OnError, OnUnknown, decode_avro
from busway_spark.offsets import Position, position_options
from busway_spark.schemas import Reader, Schemas, schemas_of

Source = Literal["kafka", "busway"]
Isolation = Literal["read_committed", "read_uncommitted"]
_SOURCE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
DEFAULT_SOURCE: Final[Source] = "busway"
"""The faster one, see spark/README.md; it needs no jar either."""


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
    """What is in a topic, as events.

    Args:
        spark: see `busway_spark.session`.
        topic: its name.
        bootstrap_servers: `host:port`, several with commas.
        schema_registry: its address.
        start, end: earliest, latest, a moment (the first record at or after it), or offsets by partition.
        subject: where the schemas are, `<topic>-value` unless given.
        reader: which schema all rows are read as: the newest, a version's number, JSON text or an event class.
        isolation: whether records of open and aborted transactions are left out.
        on_error: keep records that are no events, with the reason in `error`, or fail at the first.
        min_partitions: tasks at least; partitions are split for it.
        source: Spark's Kafka source or our own; the rows are the same.
        kafka_options: further options of Spark's Kafka source, by its names: `kafka.security.protocol`, `kafka.sasl.jaas.config` and
            their like, for brokers that want TLS or SASL.
        decoder: the JVM's or the one in Python; the JVM's where it is there.

    Raises:
        NoSchema, NoColumns: there is no schema to read as.
        RegistryUnreachable, ConnectionFailed: there is no answer.
        BrokerError: there is no such topic.
        NotServed: `kafka_options` for our own source.
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
    """A topic without an end, as events.

    Args:
        start: as for `read_topic`; counts only for a new checkpoint.
        max_offsets_per_trigger: how much one micro-batch takes, about.
        on_new_schema: a schema id that was not in the registry when the query was built stops it, so that nothing is dropped and no new
            column is missed; `supervise.run_stream` then rebuilds it. With keep such records have a reason in `error`.
        missing_ids: ids that the registry does not have at all, from `run_stream`; they stop nothing.
        the others: as for `read_topic`.

    Raises:
        as `read_topic`.
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
    """The records that are no events, as they came, with the reason in `error`."""
    return decoded.where(F.col("error").isNotNull()).select(
        "error", "schema_id", "topic", "partition", "offset", "timestamp", "key", "value"
    )


class NotServed(BuswayError):
    """An option that the chosen source does not have; the text names both."""


def secured(kafka_options: Mapping[str, str]) -> bool:
    """Whether brokers are spoken to by TLS or SASL, which Busway's own client does not do: then Spark alone asks them."""
    return kafka_options.get("kafka.security.protocol", "PLAINTEXT") != "PLAINTEXT"


def _source(source: Source | None, kafka_options: Mapping[str, str] | None) -> tuple[Source, dict[str, str]]:
    further = dict(kafka_options or {})
    chosen = source or ("kafka" if further else DEFAULT_SOURCE)
    if further and chosen != "kafka":
        raise NotServed(
            f"{', '.join(further)}: options of Spark's Kafka source; the source {chosen} has none, give source='kafka'"
        )
    return chosen, further


def _prepared(
    topic: str,
    bootstrap_servers: str,
    schema_registry: str,
    subject: str | None,
    reader: Reader,
    *,
    kafka_options: Mapping[str, str],
) -> Schemas:
    # The broker is asked first: Spark's own source would wait for one that is not there, and name a missing topic by a Java exception.
    if not secured(kafka_options):
        asyncio.run(_check_topic(bootstrap_servers, topic))
    return schemas_of(schema_registry, topic, subject=subject, reader=reader)


async def _check_topic(bootstrap_servers: str, topic: str) -> None:
    async with Admin(bootstrap_servers) as admin:
        await admin.describe_topics([topic])


def _options(topic: str, bootstrap_servers: str, isolation: Isolation) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
        # Records that were deleted before they were read are an error, not a gap to pass over.
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
