"""DataFrames into a topic, as registry-framed Avro.

Here: the rows' schema, the frame, Spark's Kafka sink.
Not here: reading (`topics`).

The sink is at-least-once: a retried task writes its rows again, so give events an id where that matters.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.streaming import StreamingQuery

from busway import Admin, AvroCodec, BuswayError, RegistryClient, RegistryRefused, SecurityOptions
from busway_spark.avro import available_decoder, nullable
from busway_spark.jars import JarsMissing
from busway_spark.java_options import java_options
from busway_spark.security import checking_security

_AVRO: Final[dict[type[T.DataType], Any]] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.BinaryType: "bytes",
    T.StringType: "string",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_NOT_FOUND: Final = frozenset({40401, 40402})


class DoesNotFit(BuswayError):
    """A DataFrame's columns do not fit the schema."""


def write_topic(
    frame: DataFrame,
    topic: str,
    *,
    bootstrap_servers: str,
    schema_registry: str,
    key: str | None = None,
    deleted: str | None = None,
    schema: str | type | None = None,
    subject: str | None = None,
    checkpoint: str | None = None,
    trigger: dict[str, Any] | None = None,
    kafka_options: Mapping[str, str] | None = None,
) -> StreamingQuery | None:
    """Write each row as an event, with its columns as fields. Return a stream's running query, None for a batch, then
    written.

    Args:
        topic: must exist.
        bootstrap_servers: `host:port`, several with commas.
        key: column with the record's key, as text unless binary; it stays a field.
        deleted: a boolean column, not a field; true writes a tombstone, with key and without value.
        schema: JSON text or an event class, registered if necessary; by default the subject's newest version, or one
            inferred from the columns if there is none yet.
        subject: by default `<topic>-value`.
        checkpoint: folder for a stream's position.
        trigger: of a stream, as for `DataStreamWriter.trigger`.
        kafka_options: further options of Spark's Kafka sink, as for `read_topic`.

    Raises:
        DoesNotFit: a required field without a column, or a column without a field.
        RegistryRefused: the schema is incompatible with earlier versions.
        RegistryUnreachable, ConnectionFailed, BrokerError: no answer, or no such topic.
        BadProperties: TLS or SASL that Java's client cannot use.
        JarsMissing: the session lacks Spark's Kafka and Avro artifacts.
        ValueError: a stream without a checkpoint.
    """
    if available_decoder(frame.sparkSession) != "jvm":
        raise JarsMissing(
            "writing needs Spark's Kafka and Avro artifacts: busway_spark.session.session(name), not jars=False"
        )
    fields = [field for field in frame.schema.fields if field.name != deleted]
    name = subject or f"{topic}-value"
    further = java_options(kafka_options or {})
    security = checking_security(further)
    if security is not None:
        asyncio.run(_check_topic(bootstrap_servers, topic, security))
    schema_id, text = asyncio.run(_target(schema_registry, topic, name, fields=fields, schema=schema))
    event = F.struct(*_columns(fields, json.loads(text), name))
    head = bytes(1) + schema_id.to_bytes(4, "big")
    value: Column = F.concat(F.lit(head), to_avro(event, text))
    if deleted is not None:
        value = F.when(~F.col(deleted), value)
    key_column = F.lit(None).cast("binary") if key is None else _key(frame, key)
    rows = frame.select(key_column.alias("key"), value.alias("value"))
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, **further}
    if not frame.isStreaming:
        rows.write.format("kafka").options(**options).save()
        return None
    if checkpoint is None:
        raise ValueError("a stream needs a checkpoint: a folder where it keeps its position")
    writer = rows.writeStream.format("kafka").options(**options).option("checkpointLocation", checkpoint)
    return writer.queryName(f"to {topic}").trigger(**(trigger or {"processingTime": "5 seconds"})).start()


def _key(frame: DataFrame, key: str) -> Column:
    binary = isinstance(frame.schema[key].dataType, T.BinaryType)
    return F.col(key) if binary else F.col(key).cast("string").cast("binary")


async def _check_topic(bootstrap_servers: str, topic: str, security: SecurityOptions) -> None:
    async with Admin(bootstrap_servers, security=security) as admin:
        await admin.describe_topics([topic])


async def _target(
    registry_url: str,
    topic: str,
    subject: str,
    *,
    fields: list[T.StructField],
    schema: str | type | None,
) -> tuple[int, str]:
    async with RegistryClient(registry_url) as registry:
        if schema is None:
            try:
                newest = await registry.version(subject)
            except RegistryRefused as problem:
                if problem.code not in _NOT_FOUND:
                    raise
                schema = suggested_schema(fields, topic)
            else:
                return newest.id, newest.schema
        text = schema if isinstance(schema, str) else AvroCodec(schema).schema_text
        return await registry.register(subject, text), text


def _columns(fields: list[T.StructField], schema: Any, subject: str) -> list[Column]:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DoesNotFit(f"the schema of {subject} is no record, so columns cannot be its fields")
    wanted = {field["name"]: field for field in schema["fields"]}
    given = {field.name: field for field in fields}
    if more := sorted(set(given) - set(wanted)):
        raise DoesNotFit(
            f"{', '.join(more)}: no field of {subject}; it has {', '.join(wanted)}. Give `schema` to widen it"
        )
    columns = []
    for name, field in wanted.items():
        if name not in given:
            if not nullable(field["type"]):
                raise DoesNotFit(f"{subject} requires the field {name}, which is no column")
            continue
        column = F.col(name)
        if given[name].nullable and not nullable(field["type"]):
            refuse = F.raise_error(F.lit(f"column {name} is null in a row, but {subject} requires it"))
            column = F.coalesce(column, refuse).alias(name)
        columns.append(column)
    return columns


def suggested_schema(fields: list[T.StructField], topic: str) -> str:
    """Infer an Avro record from the columns; nullable ones default to null.

    Raises:
        DoesNotFit: a type without an Avro counterpart.
    """
    words = topic.replace("-", "_").replace(".", "_").split("_")
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return json.dumps(_record(fields, name if name[:1].isalpha() else f"Topic{name}"))


def _record(fields: list[T.StructField], name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field.name, "type": ["null", kind], "default": None}
            if field.nullable
            else {"name": field.name, "type": kind}
            for field in fields
            for kind in [_avro_type(field.dataType, f"{name}_{field.name}")]
        ],
    }


def _avro_type(kind: T.DataType, name: str) -> Any:
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, T.StructType):
        return _record(kind.fields, name)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _maybe(_avro_type(kind.elementType, name), null=kind.containsNull)}
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return {"type": "map", "values": _maybe(_avro_type(kind.valueType, name), null=kind.valueContainsNull)}
    if type(kind) in _AVRO:
        return _AVRO[type(kind)]
    raise DoesNotFit(f"{kind.simpleString()} has no Avro type; cast the column behind {name}, or give `schema`")


def _maybe(schema: Any, *, null: bool) -> Any:
    return ["null", schema] if null else schema
