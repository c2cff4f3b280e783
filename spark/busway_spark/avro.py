"""Registry-framed Avro in a DataFrame: one byte of magic, four of schema id, the body.

What lives here: the columns `schema_id`, `event` and `error`, decoded with the schema that wrote each record. What does not: asking the
registry which schemas there are (`schemas`), decoding without Spark's Avro module (`avro_python`).

Spark's `from_avro` takes one writer's schema and keeps silent about what must not pass in silence: a damaged body ends as a struct whose
fields are all null. So it is given the union of all writers (`united`), whose one field is the event: it is there in every record that
was decoded, and null in the damaged ones. The plan is of one size, however many schema ids there are. A null value is a tombstone.
"""

from collections.abc import Collection
from typing import Any, Final, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from busway_spark.schemas import Schemas
from busway_spark.united import EVENT, united

FRAME_BYTES: Final = 5
OnError = Literal["keep", "fail"]
OnUnknown = Literal["keep", "stop"]
Decoder = Literal["jvm", "python"]
UNKNOWN_MARK: Final = "busway-unknown-schema-id="
"""Precedes the id in the text of the failure that stops a query at an id that is not known; `supervise` looks for it."""
_PLACE: Final = "_place"
"""Where a record's schema id is in the list of those that are known, from 1 on."""
_UNFRAMED: Final = "not framed: expected a zero byte and a schema id of four bytes"


def decode_avro(
    frame: DataFrame,
    *,
    schemas: Schemas,
    column: str = "value",
    on_error: OnError = "keep",
    on_unknown: OnUnknown = "keep",
    missing_ids: Collection[int] = (),
    decoder: Decoder | None = None,
) -> DataFrame:
    """Decode the framed Avro in `column`.

    Args:
        frame: has the binary column `column`, and `topic`, `partition` and `offset`, which errors name.
        schemas: the writers' schemas by id, and the one that all records are read as; fields that a writer lacked get its defaults.
        column: name of the binary column.
        on_error: keep the rows that cannot be decoded, with the reason in `error`, or fail the query at the first.
        on_unknown: whether a schema id that is not in `schemas` is such a row, or stops the query, so that it can go on with more schemas.
        missing_ids: ids that the registry is known not to have: such rows even then.
        decoder: in the JVM, or fastavro in Python workers; the JVM where its Avro module is there.

    Returns:
        `frame` with the columns `schema_id` (bigint, null for a tombstone or an unframed value), `event` (struct of the
        reader's fields, null where not decoded) and `error` (null, or why the record was not decoded).

    Raises:
        NoColumns: the decoder cannot make columns of the schema.
    """
    value = F.col(column)
    ids = sorted(schemas.ids)
    framed = (F.length(column) >= FRAME_BYTES) & (F.hex(F.substring(value, 1, 1)) == "00")
    other_id = F.when(
        framed, F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("bigint")
    )  # unsigned: more than an int holds
    # Known ids are looked up as bytes; only a record with another pays for the conversion.
    heads = F.array(*[F.lit(bytes(1) + one.to_bytes(4, "big")) for one in ids])
    place = F.array_position(heads, F.substring(value, 1, FRAME_BYTES))
    known_id = F.get(F.array(*[F.lit(one).cast("bigint") for one in ids]), F.col(_PLACE) - 1)
    identified = frame.withColumn(_PLACE, place).withColumn(
        "schema_id", F.when(F.col(_PLACE) > 0, known_id).otherwise(other_id)
    )
    if (decoder or available_decoder(frame.sparkSession)) == "jvm":
        decoded = identified.withColumn("_event", _once(_by_writer(value, ids, schemas)).getField(EVENT))
    else:
        from busway_spark.avro_python import decode_in_python

        decoded = decode_in_python(identified, schemas, column)
    judged = _judged(decoded, value, schemas, on_error=on_error, on_unknown=on_unknown, missing_ids=missing_ids)
    return judged.drop("_event", _PLACE)


def available_decoder(spark: SparkSession) -> Decoder:
    """The JVM's decoder where Spark's Avro module is on the class path, else the one in Python."""
    try:
        spark.range(0).select(F.expr("""from_avro(cast('' AS binary), '"string"', map())"""))
    except AnalysisException:
        return "python"
    return "jvm"


def _once(decoded: Column) -> Column:
    """Keep the optimizer from decoding twice.

    It would copy the decoding into every filter on the event or the error below it; it moves nothing across an expression that need not
    give the same answer twice, such as the number of the partition.
    """
    return F.when(F.spark_partition_id() >= 0, decoded)


def _by_writer(value: Column, ids: list[int], schemas: Schemas) -> Column:
    """The value as one of the union of all writers, decoded; null where the id is none of theirs."""
    union = united(schemas)
    branches = F.array(*[F.lit(union.branches.get(one)).cast("binary") for one in ids])
    body = F.concat(F.get(branches, F.col(_PLACE) - 1), F.substring(value, FRAME_BYTES + 1, 2**31 - 1))
    return from_avro(body, union.writer, {"avroSchema": union.reader, "mode": "PERMISSIVE"})


def _judged(
    decoded: DataFrame,
    value: Column,
    schemas: Schemas,
    *,
    on_error: OnError,
    on_unknown: OnUnknown,
    missing_ids: Collection[int],
) -> DataFrame:
    """Tell what was decoded from what was not, and why."""
    schema_id = F.col("schema_id")
    where = F.concat_ws(
        " ", F.lit(" in"), F.col("topic"), F.lit("partition"), F.col("partition"), F.lit("offset"), F.col("offset")
    )
    unknown: Column = F.concat(
        F.lit("schema id "), schema_id, F.lit(f" is no version of {schemas.subject} that is known")
    )
    if on_unknown == "stop":
        stop = F.raise_error(F.concat(F.lit(UNKNOWN_MARK), schema_id, F.lit(";"), unknown, where))
        unknown = F.when(schema_id.isin(sorted(missing_ids)), unknown).otherwise(stop) if missing_ids else stop
    error = F.when(F.col("_event").isNotNull() | value.isNull(), None).when(schema_id.isNull(), F.lit(_UNFRAMED))
    if schemas.others:
        pairs = [F.lit(part) for pair in sorted(schemas.others.items()) for part in pair]
        reasons = F.create_map(*pairs)
        error = error.when(schema_id.isin(sorted(schemas.others)), F.element_at(reasons, schema_id))
    damaged = F.concat(F.lit("damaged: the body does not fit schema id "), schema_id)
    error = error.when(schema_id.isin(sorted(schemas.writers)), damaged).otherwise(unknown)
    if on_error == "fail":
        error = F.when(error.isNotNull(), F.raise_error(F.concat(error, where)))
    event = F.when(F.col("error").isNull(), F.col("_event"))
    return decoded.withColumn("error", error).withColumn("event", event)


def nullable(schema: Any) -> bool:
    """Whether a field of this schema may be null."""
    return schema == "null" or (isinstance(schema, list) and "null" in schema)
