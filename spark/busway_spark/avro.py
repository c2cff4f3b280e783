"""Registry-framed Avro in a DataFrame: one byte of magic, four of schema id, the body.

Here: the columns `schema_id`, `event` and `error`, decoded with each record's writer schema.
Not here: asking the registry (`schemas`), decoding without Spark's Avro module (`avro_python`).

Spark's `from_avro` hides failures: an unknown schema id becomes null, a damaged body a struct of nulls. So the reader
schema gets an extra field with a default, which is null in damaged records only. A null value is a tombstone.
"""

import json
from collections.abc import Collection
from typing import Any, Final, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from busway_spark.framing import DECODED, FRAME_BYTES
from busway_spark.schemas import Schemas

OnError = Literal["keep", "fail"]
OnUnknown = Literal["keep", "stop"]
Decoder = Literal["jvm", "python"]
UNKNOWN_MARK: Final = "busway-unknown-schema-id="
"""Prefix of the unknown id in the failure that stops a query; `supervise` searches for it."""
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
        frame: has the binary column `column`, and `topic`, `partition` and `offset` for error messages.
        schemas: writers' schemas by id, and the reader schema of all records; missing fields get its defaults.
        on_error: keep undecodable rows, with the reason in `error`, or fail the query at the first.
        on_unknown: treat a schema id missing in `schemas` as an undecodable row, or stop the query, so that it can
            continue with more schemas.
        missing_ids: ids that the registry lacks: always undecodable rows.
        decoder: the JVM's or fastavro in Python workers; by default the JVM's if its Avro module is present.

    Returns:
        `frame` with the columns `schema_id` (bigint, null for a tombstone or an unframed value), `event` (struct of the
        reader's fields, null if not decoded) and `error` (null, or why not decoded).

    Raises:
        NoColumns: the decoder cannot make columns of the schema.
    """
    value = F.col(column)
    prefix = F.substring(value, 1, FRAME_BYTES)
    known = {schema_id: bytes(1) + schema_id.to_bytes(4, "big") for schema_id in sorted(schemas.ids)}
    framed = (F.length(column) >= FRAME_BYTES) & (F.hex(F.substring(value, 1, 1)) == "00")
    other_id = F.when(framed, F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("bigint"))  # unsigned: exceeds int
    # Known ids are compared as bytes; only records with others pay for the conversion.
    schema_id = _chain(
        [(prefix == F.lit(head), F.lit(known_id).cast("bigint")) for known_id, head in known.items()], other_id
    )
    identified = frame.withColumn("schema_id", schema_id)
    if (decoder or available_decoder(frame.sparkSession)) == "jvm":
        decoded = identified.withColumn("_event", _once(_by_writer(value, schemas)))
    else:
        from busway_spark.avro_python import decode_in_python

        decoded = decode_in_python(identified, schemas, column)
    return _judged(decoded, value, schemas, on_error=on_error, on_unknown=on_unknown, missing_ids=missing_ids)


def available_decoder(spark: SparkSession) -> Decoder:
    """Return the JVM's decoder if Spark's Avro module is present."""
    try:
        spark.range(0).select(F.expr("""from_avro(cast('' AS binary), '"string"', map())"""))
    except AnalysisException:
        return "python"
    return "jvm"


def _chain(cases: list[tuple[Column, Column]], otherwise: Column) -> Column:
    (condition, result), *rest = cases
    chain = F.when(condition, result)
    for condition, result in rest:
        chain = chain.when(condition, result)
    return chain.otherwise(otherwise)


def _once(decoded: Column) -> Column:
    """Prevent the optimizer from decoding twice.

    It would copy the decoding into each filter on the event or the error, but moves nothing across a non-deterministic
    expression, such as the partition's number.
    """
    return F.when(F.spark_partition_id() >= 0, decoded)


def _by_writer(value: Column, schemas: Schemas) -> Column:
    body = F.substring(value, FRAME_BYTES + 1, 2**31 - 1)
    reader = json.loads(schemas.reader)
    reader["fields"] = [*reader["fields"], {"name": DECODED, "type": "boolean", "default": True}]
    options = {"avroSchema": json.dumps(reader), "mode": "PERMISSIVE"}
    cases = [
        (F.col("schema_id") == schema_id, from_avro(body, schema, options))
        for schema_id, schema in sorted(schemas.writers.items())
    ]
    return _chain(cases, F.lit(None))


def _judged(
    decoded: DataFrame,
    value: Column,
    schemas: Schemas,
    *,
    on_error: OnError,
    on_unknown: OnUnknown,
    missing_ids: Collection[int],
) -> DataFrame:
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
    error = F.when(F.col("_event").getField(DECODED).isNotNull() | value.isNull(), None).when(
        schema_id.isNull(), F.lit(_UNFRAMED)
    )
    for other, reason in sorted(schemas.others.items()):
        error = error.when(schema_id == other, F.lit(reason))
    damaged = F.concat(F.lit("damaged: the body does not fit schema id "), schema_id)
    error = error.when(schema_id.isin(sorted(schemas.writers)), damaged).otherwise(unknown)
    if on_error == "fail":
        error = F.when(error.isNotNull(), F.raise_error(F.concat(error, where)))
    event = F.when(F.col("error").isNull(), F.col("_event").dropFields(DECODED))
    return decoded.withColumn("error", error).withColumn("event", event).drop("_event")


def nullable(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)
