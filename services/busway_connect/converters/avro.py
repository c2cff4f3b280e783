"""`io.confluent.connect.avro.AvroConverter`: Avro with a schema id of a registry.

Here: values ↔ bytes, and requests to the registry.
Not here: schemas ↔ Avro (`avro_schema`).

Settings: `schema.registry.url`; `auto.register.schemas` (true); `scrub.invalid.names` (false). Subjects are `TOPIC-key`
and `TOPIC-value`.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

import fastavro

from busway import RegistryClient, RegistryRefused, RegistryUnreachable
from busway_connect.connector import Retriable, Setting
from busway_connect.converters.avro_schema import FromAvro, ToAvro, scrubbed
from busway_connect.converters.interface import CACHED_SCHEMAS, BySchema, ConversionFailed, Converter
from busway_connect.schema import Schema

_FRAME: Final = struct.Struct(">bI")
_SERVER_ERRORS: Final = 500
Change = Callable[[Any], Any]


class _Writing:
    __slots__ = ("change", "parsed", "text")

    def __init__(self, schema: Schema, *, scrub: bool) -> None:
        avro = ToAvro(_default_out, scrub=scrub).convert(schema)
        self.text = json.dumps(avro, ensure_ascii=False, separators=(",", ":"))
        try:
            self.parsed = fastavro.parse_schema(_plain(avro))
        except Exception as problem:  # noqa: BLE001 - fastavro raises nearly anything
            raise ConversionFailed(f"no Avro schema can say this: {problem}") from None
        self.change = _change(schema, scrub=scrub)


class AvroConverter(Converter):
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="schema.registry.url", doc="The registry's address", required=True),
        Setting(name="auto.register.schemas", doc="Whether new schemas are registered", default="true", type="BOOLEAN"),
        Setting(name="scrub.invalid.names", doc="Whether names are changed that Avro does not allow", default="false", type="BOOLEAN"),
    )  # fmt: skip
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "enhanced.avro.schema.support": ("false",),
        "connect.meta.data": ("true",),
        "normalize.schemas": ("false",),
        "use.latest.version": ("false",),
        **dict.fromkeys(
            ("key.subject.name.strategy", "value.subject.name.strategy"),
            ("io.confluent.kafka.serializers.subject.topicnamestrategy",),
        ),
    }

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        super().__init__(settings, is_key=is_key)
        url = settings.get("schema.registry.url", "").split(",")[0].strip()
        if not url:
            which = "key" if is_key else "value"
            raise ConversionFailed(f'Missing required configuration "{which}.converter.schema.registry.url"')
        self._registry = RegistryClient(url)
        self._register = settings.get("auto.register.schemas", "true").strip().lower() != "false"
        self._scrub = settings.get("scrub.invalid.names", "false").strip().lower() == "true"
        self._writings: BySchema[_Writing] = BySchema()
        self._found_ids: dict[tuple[str, str], int] = {}
        self._readings: dict[int, tuple[Any, Schema, Change | None]] = {}

    async def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise ConversionFailed(
                "a value without a schema cannot become Avro; use the JsonConverter, or a source that has schemas"
            )
        writing = self._writings.get(schema) or self._writings.put(schema, _Writing(schema, scrub=self._scrub))
        out = io.BytesIO()
        out.write(_FRAME.pack(0, await self._id(f"{topic}-{'key' if self.is_key else 'value'}", writing.text)))
        try:
            fastavro.schemaless_writer(out, writing.parsed, value if writing.change is None else writing.change(value))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as problem:
            raise ConversionFailed(
                f"{value!r:.200} does not fit its schema: {problem or type(problem).__name__}"
            ) from None
        return out.getvalue()

    async def _id(self, subject: str, text: str) -> int:
        try:
            if self._register:
                return await self._registry.register(subject, text)
            if (subject, text) not in self._found_ids:
                response = await self._registry.request(
                    "POST", f"/subjects/{quote(subject, safe='')}", {"schema": text}
                )
                self._found_ids[subject, text] = int(response["id"])
            return self._found_ids[subject, text]
        except (RegistryUnreachable, RegistryRefused) as problem:
            raise _translated(problem, f"the schema of {subject}") from None

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if len(data) < _FRAME.size or data[0] != 0:
            raise ConversionFailed("Unknown magic byte! The record was not written through a schema registry")
        schema_id = _FRAME.unpack_from(data)[1]
        parsed, schema, change = await self._reading(schema_id)
        body = io.BytesIO(data)
        body.seek(_FRAME.size)
        try:
            value: Any = fastavro.schemaless_reader(body, parsed, None, return_named_type=False)
        except Exception as problem:  # noqa: BLE001 - a damaged body makes fastavro raise nearly anything
            raise ConversionFailed(f"the body written with schema {schema_id} cannot be read: {problem}") from None
        if body.read(1):
            raise ConversionFailed(f"bytes are left over after the value written with schema {schema_id}")
        return schema, value if change is None else change(value)

    async def _reading(self, schema_id: int) -> tuple[Any, Schema, Change | None]:
        if schema_id not in self._readings:
            try:
                text = await self._registry.schema(schema_id)
            except (RegistryUnreachable, RegistryRefused) as problem:
                raise _translated(problem, f"schema {schema_id}") from None
            try:
                avro = json.loads(text)
                schema = FromAvro().convert(avro)
                parsed = fastavro.parse_schema(_plain(avro))
            except ConversionFailed:
                raise
            except Exception as problem:  # noqa: BLE001 - others' schemas: fastavro raises nearly anything
                raise ConversionFailed(f"schema {schema_id} cannot be used: {problem}") from None
            if len(self._readings) >= CACHED_SCHEMAS:
                del self._readings[next(iter(self._readings))]
            self._readings[schema_id] = (parsed, schema, _change_back(schema))
        return self._readings[schema_id]

    async def close(self) -> None:
        await self._registry.close()


def _translated(problem: RegistryUnreachable | RegistryRefused, what: str) -> Exception:
    if isinstance(problem, RegistryUnreachable) or problem.code // 100 == _SERVER_ERRORS // 100:
        return Retriable(str(problem))
    return ConversionFailed(f"the registry refuses {what}: {problem}")


def _plain(avro: Any) -> Any:
    """Remove logical types: Connect's values have the form of Avro's primitives."""
    if isinstance(avro, list):
        return [_plain(item) for item in avro]
    if isinstance(avro, dict):
        return {name: _plain(part) if name in _NESTED else part for name, part in avro.items() if name != "logicalType"}
    return avro


_NESTED: Final = frozenset({"type", "items", "values", "fields"})


def _default_out(schema: Schema, value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if schema.type == "array":
        assert schema.value_schema is not None
        return [_default_out(schema.value_schema, item) for item in value]
    if schema.type == "struct":
        return {field.name: _default_out(field.schema, value.get(field.name)) for field in schema.fields}
    return value


def _change(schema: Schema, *, scrub: bool) -> Change | None:
    """Return the conversion for fastavro; None for none needed, the usual case."""
    inner = _change_inner(schema, scrub=scrub)
    default = schema.default if schema.has_default else None
    if default is None and inner is None:
        return None

    def change(value: Any) -> Any:
        if value is None:
            value = default
        return value if value is None or inner is None else inner(value)

    return change


def _change_inner(schema: Schema, *, scrub: bool) -> Change | None:
    if schema.type == "struct":
        return _change_struct(schema, scrub=scrub)
    if schema.type == "array":
        assert schema.value_schema is not None
        item = _change(schema.value_schema, scrub=scrub)
        return None if item is None else _each(item)
    if schema.type == "map":
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        item = _change(schema.value_schema, scrub=scrub)
        if schema.key_schema.type != "string" or schema.key_schema.optional:
            key = _change(schema.key_schema, scrub=scrub) or _same
            inner = item or _same
            return lambda value: [{"key": key(name), "value": inner(content)} for name, content in value.items()]
        return None if item is None else _each_value(item)
    return None


def _each(item: Change) -> Change:
    return lambda value: [item(element) for element in value]


def _each_value(item: Change) -> Change:
    return lambda value: {name: item(content) for name, content in value.items()}


def _change_struct(schema: Schema, *, scrub: bool) -> Change | None:
    parts = [
        (field.name, scrubbed(field.name) if scrub else field.name, _change(field.schema, scrub=scrub))
        for field in schema.fields
    ]
    if all(name == shown and change is None for name, shown, change in parts):
        return None
    chosen = [(name, shown, change or _same) for name, shown, change in parts]
    return lambda value: {shown: change(value.get(name)) for name, shown, change in chosen}


def _change_back(schema: Schema) -> Change | None:
    """Return the reverse conversion. Maps with non-text keys are lists of entries in Avro."""
    if schema.type == "struct":
        parts = [(field.name, _change_back(field.schema)) for field in schema.fields]
        changes = [(name, change) for name, change in parts if change is not None]
        if not changes:
            return None
        return lambda value: (
            value if value is None else {**value, **{name: change(value[name]) for name, change in changes}}
        )
    inner = None if schema.value_schema is None else _change_back(schema.value_schema)
    if schema.type == "array" and inner is not None:
        return lambda value: value if value is None else [inner(element) for element in value]
    if schema.type == "map" and schema.key_schema is not None:
        item = inner or _same
        if schema.key_schema.type != "string" or schema.key_schema.optional:
            return lambda value: value if value is None else {entry["key"]: item(entry["value"]) for entry in value}
        if inner is not None:
            return lambda value: value if value is None else {name: inner(content) for name, content in value.items()}
    return None


def _same(value: Any) -> Any:
    return value
