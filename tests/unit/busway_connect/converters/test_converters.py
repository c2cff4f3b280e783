"""Converters without a registry: schemas ↔ Avro as Confluent maps them, values through fastavro, text, bytes, JSON."""

import asyncio
import contextlib
import decimal
from typing import Any

import pytest

from busway_connect.converters.avro import AvroConverter
from busway_connect.converters.avro_schema import FromAvro, ToAvro, scrubbed
from busway_connect.converters.interface import ConversionFailed, Converter
from busway_connect.converters.json import JsonConverter, shortest_single
from busway_connect.converters.plain import ByteArrayConverter, StringConverter
from busway_connect.decimals import DECIMAL, decimal_from_bytes, decimal_to_bytes
from busway_connect.schema import Field, Schema

VALUE = Schema(
    type="struct",
    name="bank.public.accounts.Value",
    optional=True,
    fields=(
        Field(name="id", schema=Schema(type="int64")),
        Field(name="short", schema=Schema(type="int16", optional=True)),
        Field(name="at", schema=Schema(type="int64", optional=True, name="io.debezium.time.MicroTimestamp", version=1)),
        Field(name="amount", schema=Schema(type="bytes", optional=True, name=DECIMAL, version=1, parameters=(("scale", "2"), ("connect.decimal.precision", "10")))),
        Field(name="state", schema=Schema(type="string", default="open", has_default=True)),
        Field(name="note", schema=Schema(type="string", optional=True, default="none", has_default=True)),
    ),
)  # fmt: skip
ENVELOPE = Schema(
    type="struct",
    name="bank.public.accounts.Envelope",
    version=2,
    fields=(
        Field(name="before", schema=VALUE),
        Field(name="after", schema=VALUE),
        Field(name="op", schema=Schema(type="string")),
    ),
)


def test_an_envelope_is_the_avro_that_confluent_writes() -> None:
    """The second use of a struct is its name; optional is a union with null first, or last where there is a default."""
    value = {
        "type": "record",
        "name": "Value",
        "namespace": "bank.public.accounts",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "short", "type": ["null", {"type": "int", "connect.type": "int16"}], "default": None},
            {
                "name": "at",
                "type": [
                    "null",
                    {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"},
                ],
                "default": None,
            },
            {
                "name": "amount",
                "type": [
                    "null",
                    {
                        "type": "bytes",
                        "scale": 2,
                        "precision": 10,
                        "connect.version": 1,
                        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                        "connect.name": DECIMAL,
                        "logicalType": "decimal",
                    },
                ],
                "default": None,
            },
            {"name": "state", "type": {"type": "string", "connect.default": "open"}, "default": "open"},
            {"name": "note", "type": [{"type": "string", "connect.default": "none"}, "null"], "default": "none"},
        ],
        "connect.name": "bank.public.accounts.Value",
    }
    assert ToAvro(lambda _, value: value, scrub=False).convert(ENVELOPE) == {
        "type": "record",
        "name": "Envelope",
        "namespace": "bank.public.accounts",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "bank.public.accounts.Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
        "connect.version": 2,
        "connect.name": "bank.public.accounts.Envelope",
    }


def test_a_schema_comes_back_from_avro_as_it_was() -> None:
    """Everything that Avro cannot say lies in its `connect.*` properties."""
    assert FromAvro().convert(ToAvro(lambda _, value: value, scrub=False).convert(ENVELOPE)) == ENVELOPE


@pytest.mark.parametrize(
    ("avro", "schema"),
    [
        ("string", Schema(type="string")),
        ({"type": "int", "logicalType": "date"}, Schema(type="int32", name="org.apache.kafka.connect.data.Date", version=1)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, Schema(type="string")),
        ({"type": "array", "items": ["null", "int"]}, Schema(type="array", value_schema=Schema(type="int32", optional=True))),
    ],
)  # fmt: skip
def test_schemas_of_other_writers_are_read(avro: Any, schema: Schema) -> None:
    """Avro that no Connect worker wrote."""
    assert FromAvro().convert(avro) == schema


class _InMemory(AvroConverter):
    """With the ids of a registry that is a list: what is under test is bytes."""

    def __init__(self, **settings: str) -> None:
        super().__init__({"schema.registry.url": "http://127.0.0.1:1", **settings}, is_key=False)
        self.texts: list[str] = []
        self._registry.register = self._take  # type: ignore[method-assign]
        self._registry.schema = self._give  # type: ignore[method-assign]

    async def _take(self, subject: str, schema: str, *, schema_type: str = "AVRO") -> int:
        if schema not in self.texts:
            self.texts.append(schema)
        return self.texts.index(schema)

    async def _give(self, schema_id: int) -> str:
        return self.texts[schema_id]


def there_and_back(converter: Converter, schema: Schema, value: Any) -> tuple[Schema | None, Any]:
    """What is read of what is written."""

    async def run() -> tuple[Schema | None, Any]:
        return await converter.to_connect("topic", await converter.from_connect("topic", schema, value))

    return asyncio.run(run())


ROW = {"id": 1, "short": None, "at": 5, "amount": b"\x01\x00", "state": "shut", "note": "hm"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ENVELOPE, {"before": None, "after": ROW, "op": "c"}),
        (Schema(type="string"), "text"),
        (Schema(type="map", key_schema=Schema(type="int32"), value_schema=Schema(type="string")), {1: "a", 2: "b"}),
        (Schema(type="map", key_schema=Schema(type="string"), value_schema=Schema(type="int32")), {"a": 1}),
        (Schema(type="array", value_schema=Schema(type="int64", optional=True)), [1, None]),
    ],
)
def test_values_come_back_from_avro(schema: Schema, value: Any) -> None:
    """Bytes and numbers stay in the form that Connect's names prescribe, whatever Avro's logical types say."""
    assert there_and_back(_InMemory(), schema, value) == (schema, value)


def test_null_in_a_field_with_a_default_becomes_the_default() -> None:
    """As `Struct.get` has it in Java."""
    row = {**ROW, "state": None, "note": None}
    _, decoded = there_and_back(_InMemory(), ENVELOPE, {"before": None, "after": row, "op": "c"})
    assert (decoded["after"]["state"], decoded["after"]["note"]) == ("open", "none")


def test_names_that_avro_forbids() -> None:
    """Refused with the setting that changes them; changed with it."""
    schema = Schema(type="struct", name="a-b.c", fields=(Field(name="1st name", schema=Schema(type="int32")),))
    with pytest.raises(ConversionFailed, match=r"scrub\.invalid\.names=true"):
        there_and_back(_InMemory(), schema, {"1st name": 1})
    _, decoded = there_and_back(_InMemory(**{"scrub.invalid.names": "true"}), schema, {"1st name": 1})
    assert decoded == {"x1st_name": 1}
    assert scrubbed("a-b") == "a_b"


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x01\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x02ab"]
)
def test_damaged_avro_is_told(data: bytes) -> None:
    """Too short, another magic byte, no body, left-over bytes."""
    converter = _InMemory()
    converter.texts.append('"string"')
    with pytest.raises(ConversionFailed):
        asyncio.run(converter.to_connect("topic", data))


def test_values_that_do_not_fit_are_told() -> None:
    """By Avro and by JSON, naming the place."""
    for converter in (_InMemory(), JsonConverter({}, is_key=False)):
        with pytest.raises(ConversionFailed):
            asyncio.run(converter.from_connect("topic", ENVELOPE, {"before": None, "after": {"id": "x"}, "op": "c"}))
    with pytest.raises(ConversionFailed, match=r"topic\.after\.id: 'x' is no int64"):
        asyncio.run(JsonConverter({}, is_key=False).from_connect("topic", ENVELOPE, {"after": {"id": "x"}, "op": "c"}))


def test_a_number_in_json_reads_as_its_schema_says() -> None:
    """There and back with schemas."""
    value = {"before": None, "after": ROW, "op": "c"}
    assert there_and_back(JsonConverter({}, is_key=False), ENVELOPE, value) == (ENVELOPE, value)


def test_floats_are_as_short_as_they_can_be() -> None:
    """A float32 has the digits that tell it from its neighbours, as in Java."""
    assert shortest_single(0.10000000149011612) == 0.1
    data = asyncio.run(
        JsonConverter({"schemas.enable": "false"}, is_key=False).from_connect("t", Schema(type="float64"), float("nan"))
    )
    assert data == b'"NaN"'


def test_text_and_bytes() -> None:
    """StringConverter and ByteArrayConverter."""
    string, raw = StringConverter({}, is_key=True), ByteArrayConverter({}, is_key=True)
    assert there_and_back(string, Schema(type="string"), "ø")[1] == "ø"
    assert there_and_back(raw, Schema(type="bytes"), b"\xff")[1] == b"\xff"
    assert asyncio.run(string.from_connect("t", None, True)) == b"true"
    with pytest.raises(ConversionFailed):
        asyncio.run(string.to_connect("t", b"\xff"))
    with pytest.raises(ConversionFailed):
        asyncio.run(raw.from_connect("t", None, "text"))


@pytest.mark.parametrize("text", ["0.00", "-0.01", "127.99", "-128.00", "12345678901234567890.12"])
def test_decimals_keep_every_digit(text: str) -> None:
    """Two's complement of the unscaled value, the shortest."""
    data = decimal_to_bytes(decimal.Decimal(text), 2)
    assert decimal_from_bytes(data, 2) == decimal.Decimal(text)
    assert str(decimal_from_bytes(data, 2)) == text
    with pytest.raises(ValueError, match="more than 1 digits"):
        decimal_to_bytes(decimal.Decimal("0.25"), 1)


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_a_schema_or_value_that_is_nested_too_deep_is_a_bad_record(depth: int) -> None:
    """Python's own limit is no defect of the worker: the record is refused, and the next one read."""
    converter = JsonConverter({}, is_key=False)
    schema = b'{"type":"array","items":' * depth + b'{"type":"int32"}' + b"}" * depth
    deep = b'{"schema":' + schema + b',"payload":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    with contextlib.suppress(ConversionFailed):
        asyncio.run(converter.to_connect("t", deep))
    good = b'{"schema":{"type":"int32","optional":false},"payload":7}'
    assert asyncio.run(converter.to_connect("t", good))[1] == 7
    value: Any = 1
    for _ in range(min(depth, 5_000)):
        value = [value]
    with contextlib.suppress(ConversionFailed):
        asyncio.run(JsonConverter({"schemas.enable": "false"}, is_key=False).from_connect("t", None, value))
