"""Registry-framed Avro in a DataFrame: one byte of magic, four of schema id, the body.

What lives here: the columns that take a framed value apart and decode it with the schema that wrote it, all inside the
JVM. What does not: asking the registry which schemas there are (`topics`).

Spark's `from_avro` keeps silent about two things that must not pass in silence: a schema id that it was not given ends as
null, and a damaged body ends as a struct whose fields are all null. Both get a reason in the column `error` here, so that
no record disappears. A null value is a tombstone, which is neither.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

FRAME_BYTES = 5


def decode_avro(frame: DataFrame, *, writers: Mapping[int, str], reader: str, column: str = "value") -> DataFrame:
    """Decode the framed Avro in `column`.

    Args:
        frame: has the binary column `column`.
        writers: schema id → writer schema as JSON text; every id that may occur.
        reader: schema as JSON text that all records are read as; fields that a writer lacked get its defaults.
        column: name of the binary column.

    Returns:
        `frame` with the columns `schema_id` (int, null for a tombstone or an unframed value), `event` (struct of the
        reader's fields, null where not decoded) and `error` (null, or why the record was not decoded).

    Raises:
        ValueError: `writers` is empty or the reader schema is no record.
    """
    if not writers:
        raise ValueError("no writer schema is given: the subject has no versions in the registry")
    fields = _record_fields(reader)
    body = F.substring(F.col(column), FRAME_BYTES + 1, 2**31 - 1)
    framed = (F.length(column) >= FRAME_BYTES) & (F.hex(F.substring(F.col(column), 1, 1)) == "00")
    schema_id = F.when(framed, F.conv(F.hex(F.substring(F.col(column), 2, 4)), 16, 10).cast("int"))
    decoded = frame.withColumn("schema_id", schema_id).withColumn("_event", _event(body, writers, reader))
    known = F.col("schema_id").isin([int(known_id) for known_id in writers])
    error = (
        F.when(F.col(column).isNull(), None)
        .when(F.col("schema_id").isNull(), F.lit("not framed: expected a zero byte and a schema id of four bytes"))
        .when(~known, F.concat(F.lit("schema id "), F.col("schema_id"), F.lit(" was not in the registry at start")))
        .when(_damaged(F.length(column) - FRAME_BYTES, fields), F.lit("damaged: the body does not fit its schema"))
    )
    return (
        decoded.withColumn("error", error)
        .withColumn("event", F.when(F.col("error").isNull(), F.col("_event")))
        .drop("_event")
    )


def _event(body: Column, writers: Mapping[int, str], reader: str) -> Column:
    (first, first_schema), *rest = sorted(writers.items())
    event = F.when(
        F.col("schema_id") == first, from_avro(body, first_schema, {"avroSchema": reader, "mode": "PERMISSIVE"})
    )
    for writer_id, schema in rest:
        event = event.when(
            F.col("schema_id") == writer_id, from_avro(body, schema, {"avroSchema": reader, "mode": "PERMISSIVE"})
        )
    return event


def _record_fields(reader: str) -> list[dict[str, Any]]:
    schema = json.loads(reader)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError(f"only a record schema can become columns, this one is {schema!r:.80}")
    fields = schema["fields"]
    assert isinstance(fields, list)
    return fields


def _damaged(body_bytes: Column, fields: list[dict[str, Any]]) -> Column:
    """Whether a decoded struct is the all-null one that stands for a body that could not be read."""
    required = [field["name"] for field in fields if not _nullable(field["type"])]
    if required:
        return F.col("_event").getField(required[0]).isNull()
    # All fields are optional, so all may truly be null; then the body is one byte of union branch for each.
    all_null = F.lit(True)
    for field in fields:
        all_null = all_null & F.col("_event").getField(field["name"]).isNull()
    return all_null & (body_bytes != len(fields))


def _nullable(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)
