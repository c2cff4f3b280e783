"""Record keys as text.

Here: the key column: text unchanged, a registry-framed Avro key as JSON.
Not here: values (`avro`).

Keys are Avro if the registry has `<topic>-key`, as registered by change data capture and Confluent's serializers. They
are small, so Python workers decode them with either source.
"""

import asyncio
import io
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import fastavro
import msgspec
import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from busway_spark.avro import UNKNOWN_MARK
from busway_spark.framing import FRAME_BYTES
from busway_spark.schemas import NoSchema, versions_of


def key_schemas(registry_url: str, topic: str) -> dict[int, str]:
    """Return schema id → JSON text of all versions of `<topic>-key`; empty without that subject.

    Raises:
        RegistryUnreachable: no answer.
    """
    try:
        versions = asyncio.run(versions_of(registry_url, f"{topic}-key"))
    except NoSchema:
        return {}
    return {version.id: json.dumps(version.schema) for version in versions if version.kind == "AVRO"}


def key_text(writers: Mapping[int, str], *, column: str = "key", missing_ids: Collection[int] = ()) -> Column:
    """Return the key as text, null for none.

    An Avro string or number is unchanged, any other Avro value JSON, all else UTF-8; other bytes are hexadecimal after
    `0x`.

    Args:
        writers: see `key_schemas`.
        column: the binary column.
        missing_ids: ids that the registry lacks. Any other id missing in `writers` stops the query, so that it can
            continue with more schemas (`supervise`).
    """
    plain = F.when(F.is_valid_utf8(F.col(column)), F.col(column).cast("string")).otherwise(
        F.concat(F.lit("0x"), F.lower(F.hex(column)))
    )
    if not writers:
        return plain
    schemas, missing = dict(writers), frozenset(missing_ids)

    def decoded(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        parsed = {schema_id: fastavro.parse_schema(json.loads(text)) for schema_id, text in schemas.items()}
        for part in parts:
            yield part.map(lambda key: None if key is None else _describe(key, parsed, missing))

    # Spark calls the worker for all rows of a batch anyway, so it also handles plain strings.
    return F.pandas_udf(decoded, "string")(F.col(column))


def _describe(key: bytes, parsed: Mapping[int, Any], missing: frozenset[int]) -> str:
    if len(key) >= FRAME_BYTES and key[0] == 0:
        schema_id = int.from_bytes(key[1:FRAME_BYTES], "big")
        schema = parsed.get(schema_id)
        if schema is None and schema_id not in missing:
            raise ValueError(f"{UNKNOWN_MARK}{schema_id}; a key has schema id {schema_id}, which is not known")
        if schema is not None:
            try:
                return _text(fastavro.schemaless_reader(io.BytesIO(key[FRAME_BYTES:]), schema, None))
            except Exception:  # noqa: BLE001 - a damaged body makes fastavro raise nearly anything; the bytes are shown raw
                return f"0x{key.hex()}"
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
