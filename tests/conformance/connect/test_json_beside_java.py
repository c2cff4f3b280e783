"""Our JsonConverter and Java's: what ours writes, Java's reads and writes again, byte for byte; what Java's refuses, ours refuses."""

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient
from tools.jars import debezium_libs, need

from busway_connect.converters.interface import ConversionFailed
from busway_connect.converters.json import JsonConverter
from busway_connect.decimals import DECIMAL
from busway_connect.schema import Field, Schema, Type

pytestmark = [pytest.mark.java, pytest.mark.slow]
SOURCE = Path(__file__).parent / "java" / "ConverterOracle.java"
SETTINGS: tuple[Mapping[str, str], ...] = ({}, {"schemas.enable": "false"}, {"decimal.format": "NUMERIC"})


def java(cases: list[tuple[Mapping[str, str], bytes]]) -> list[bytes | None]:
    """What Java's converter makes of these records; None for one that it refuses."""
    libs = os.pathsep.join([f"{debezium_libs()}/*"])
    lines = "".join(f"{json.dumps(settings)} {base64.b64encode(data).decode()}\n" for settings, data in cases)
    command = [need("java", "openjdk-17-jdk-headless"), "-cp", libs, str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stderr
    return [None if line.startswith("!") else base64.b64decode(line) for line in done.stdout.splitlines()]


def optional(kind: Type, **more: Any) -> Schema:
    """A schema that allows None."""
    return Schema(type=kind, optional=True, **more)


ROW = Schema(
    type="struct",
    name="db.public.t.Value",
    version=3,
    doc="a row",
    parameters=(("a", "b"), ("c", "d")),
    fields=(
        Field(name="i8", schema=Schema(type="int8")),
        Field(name="i16", schema=Schema(type="int16", default=7, has_default=True)),
        Field(name="i32", schema=optional("int32", name="io.debezium.time.Date", version=1)),
        Field(name="i64", schema=optional("int64")),
        Field(name="f32", schema=optional("float32")),
        Field(name="f64", schema=optional("float64")),
        Field(name="yes", schema=Schema(type="boolean")),
        Field(name="text", schema=optional("string", default="ø", has_default=True)),
        Field(name="raw", schema=optional("bytes")),
        Field(name="price", schema=optional("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),))),
        Field(name="list", schema=optional("array", value_schema=optional("string"))),
        Field(
            name="by_text",
            schema=optional("map", key_schema=Schema(type="string"), value_schema=optional("int32")),
        ),
        Field(
            name="by_number",
            schema=optional("map", key_schema=Schema(type="int32"), value_schema=Schema(type="string")),
        ),
        Field(
            name="inner",
            schema=optional("struct", name="Inner", fields=(Field(name="n", schema=Schema(type="int32")),)),
        ),
    ),
)
FULL = {
    "i8": -128,
    "i16": 32767,
    "i32": 19000,
    "i64": -(2**63),
    "f32": 0.1,
    "f64": 0.1,
    "yes": True,
    "text": 'täxt \u2028 "quoted" \\ / \x07',
    "raw": bytes(range(256)),
    "price": (-12345).to_bytes(2, "big", signed=True),
    "list": ["a", None],
    "by_text": {"a": 1, "b": None},
    "by_number": {1: "a", 2: "b"},
    "inner": {"n": 1},
}
EMPTY = {**dict.fromkeys(FULL), "i8": 0, "yes": False}


def test_java_reads_what_we_write_and_writes_the_same() -> None:
    """Every type, full and empty, with and without schemas: the same bytes."""
    schemas: list[tuple[Schema | None, Any]] = [(ROW, FULL), (ROW, EMPTY)]
    schemas += [(Schema(type="string"), "key"), (Schema(type="int64"), 5), (optional("string"), None)]
    schemas += [(None, {"a": [1, 2.5, None, True, "x"], "b": {}}), (None, "text"), (None, 3)]
    cases = []
    for settings in SETTINGS:
        converter = JsonConverter(settings, is_key=False)
        for schema, value in schemas:
            data = asyncio.run(converter.from_connect("topic", schema, value))
            assert data is not None
            cases.append((settings, data))
    for (settings, ours), theirs in zip(cases, java(cases), strict=True):
        if settings.get("schemas.enable") == "false":
            assert theirs is not None
            assert json.loads(theirs or b"null") == json.loads(
                ours
            )  # Java reads an object as a map, which has no order
        else:
            assert theirs == ours, settings


BAD: tuple[bytes, ...] = (
    b"{bad",
    b"5",
    b'{"payload":1}',
    b'{"schema":{"type":"int32"},"payload":1,"more":2}',
    b'{"schema":{"type":"nothing"},"payload":1}',
    b'{"schema":{},"payload":1}',
    b'{"schema":{"type":"int32"},"payload":null}',
    b'{"schema":{"type":"struct"},"payload":{}}',
    b'{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}',
    b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":{}}',
    b'{"schema":{"type":"struct","fields":[]},"payload":[]}',
    b'{"schema":{"type":"array"},"payload":[]}',
    b'{"schema":{"type":"map","keys":{"type":"string"}},"payload":{}}',
    b'{"schema":{"type":"string","parameters":{"a":1}},"payload":"x"}',
)


def test_what_java_refuses_we_refuse() -> None:
    """Records that are no JSON with a schema."""
    for data, theirs in zip(BAD, java([({}, data) for data in BAD]), strict=True):
        assert theirs is None, data
        with pytest.raises(ConversionFailed):
            asyncio.run(JsonConverter({}, is_key=False).to_connect("topic", data))
