"""Decoding framed Avro with fastavro in Spark's Python workers, for sessions without Spark's Avro module.

Here: Spark types of an Avro schema, and a function for `mapInArrow`.
Not here: frame (`framing`), reasons (`avro`).

Types are those of `from_avro`. A row costs about four times the CPU of the JVM's decoder. Unions of several types are
refused, as fastavro does not say which was written.
"""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_type

from busway_spark.framing import DECODED, FRAME_BYTES
from busway_spark.schemas import NAMED, NoColumns, Schemas, full_name

_PRIMITIVES: Final[dict[str, T.DataType]] = {
    "null": T.NullType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
    "fixed": T.BinaryType(),
}
_LOGICAL: Final[dict[tuple[str, str], T.DataType]] = {
    ("int", "date"): T.DateType(),
    ("long", "timestamp-millis"): T.TimestampType(),
    ("long", "timestamp-micros"): T.TimestampType(),
    ("long", "local-timestamp-millis"): T.TimestampNTZType(),
    ("long", "local-timestamp-micros"): T.TimestampNTZType(),
    ("long", "time-micros"): T.TimeType(6),
}
_PLAIN: Final = frozenset({"uuid", "time-millis", "timestamp-nanos", "local-timestamp-nanos", "duration"})
"""Logical types that keep their written form."""
_WIDENED: Final[dict[frozenset[str], T.DataType]] = {
    frozenset({"int", "long"}): T.LongType(),
    frozenset({"float", "double"}): T.DoubleType(),
}


def spark_type(schema: Any, namespace: str = "", named: dict[str, T.DataType] | None = None) -> T.DataType:
    """Return the Spark type of an Avro schema, like `from_avro`; raises `NoColumns` for a union of several types."""
    named = {} if named is None else named
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        return named[schema if "." in schema or not namespace else f"{namespace}.{schema}"]
    if isinstance(schema, list):
        return _union([member for member in schema if member != "null"], namespace, named)
    kind = schema["type"]
    spark = _logical(schema)
    if spark is None and kind == "array":
        spark = T.ArrayType(spark_type(schema["items"], namespace, named))
    elif spark is None and kind == "map":
        spark = T.MapType(T.StringType(), spark_type(schema["values"], namespace, named))
    elif spark is None and kind in {"record", "error"}:
        inner = full_name(schema, namespace).rpartition(".")[0]
        spark = T.StructType(
            [T.StructField(field["name"], spark_type(field["type"], inner, named)) for field in schema["fields"]]
        )
    elif spark is None:
        spark = _PRIMITIVES.get(kind) if isinstance(kind, str) else None
        spark = spark or spark_type(kind, namespace, named)
    if kind in NAMED:
        named[full_name(schema, namespace)] = spark
    return spark


def _logical(schema: dict[str, Any]) -> T.DataType | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        return T.DecimalType(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None


def _union(members: list[Any], namespace: str, named: dict[str, T.DataType]) -> T.DataType:
    if not members:
        return T.NullType()
    if len(members) == 1:
        return spark_type(members[0], namespace, named)
    widened = _WIDENED.get(frozenset(members)) if all(isinstance(member, str) for member in members) else None
    if widened is None:
        raise NoColumns(
            f"the union {json.dumps(members):.80} has several types, which the decoder in Python cannot tell apart; "
            "use a session with Spark's Avro module: busway_spark.session.session()"
        )
    return widened


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _plain(value)
        if name in {"type", "items", "values"}
        else [{**field, "type": _plain(field["type"])} for field in value]
        if name == "fields"
        else value
        for name, value in schema.items()
        if not (name == "logicalType" and value in _PLAIN)
    }


def decode_in_python(frame: DataFrame, schemas: Schemas, column: str) -> DataFrame:
    """Return `frame` with `_event`, including the field that marks decoded records. Errors as in `spark_type`."""
    reader = json.loads(schemas.reader)
    fields = spark_type(reader)
    assert isinstance(fields, T.StructType)
    event = T.StructType([*fields.fields, T.StructField(DECODED, T.BooleanType())])
    schema = T.StructType([*frame.schema.fields, T.StructField("_event", event)])
    writers = {schema_id: json.dumps(_plain(json.loads(text))) for schema_id, text in schemas.writers.items()}
    return frame.mapInArrow(_decoding(writers, json.dumps(_plain(reader)), event, column), schema)


def _decoding(
    writers: dict[int, str], reader: str, event: T.StructType, column: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    arrow_type = to_arrow_type(event, timezone="UTC")

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = fastavro.parse_schema(json.loads(reader))
        sources = {schema_id: fastavro.parse_schema(json.loads(text)) for schema_id, text in writers.items()}
        for batch in batches:
            ids, values = batch.column("schema_id").to_pylist(), batch.column(column).to_pylist()
            events = [
                _event(sources[schema_id], target, value) if schema_id in sources else None
                for schema_id, value in zip(ids, values, strict=True)
            ]
            yield batch.append_column("_event", pa.array(events, arrow_type))

    return decode


def _event(source: Any, target: Any, value: bytes) -> dict[str, Any] | None:
    try:
        event = fastavro.schemaless_reader(io.BytesIO(value[FRAME_BYTES:]), source, target)
    except Exception:  # noqa: BLE001 - a damaged body makes fastavro raise nearly anything; the row keeps the reason
        return None
    assert isinstance(event, dict)
    event[DECODED] = True
    return event
