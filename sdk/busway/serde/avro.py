"""Typed values ↔ Avro bodies.

Not here: schemas of classes (`infer`), conversion of values (`convert`).
"""

import dataclasses
import decimal
import io
import json
from typing import Any, Final, Generic, TypeVar, cast

import fastavro
from fastavro import _read_py as careful_reader

from busway.serde.convert import CLASS_OF, USE_DEFAULT, Convert, inward, outward
from busway.serde.errors import Undecodable, Unencodable
from busway.serde.infer import AvroSchema, infer_named
from busway.serde.records import fields, is_model, is_record

T = TypeVar("T")
_SHORT: Final = 1024
"""Longest body, in bytes, for fastavro's native reader of recursive schemas. It has no depth limit and could exhaust
the stack.
"""


class _Writer:
    __slots__ = ("own", "parsed", "recursive")

    def __init__(self, parsed: Any, *, own: bool) -> None:
        self.parsed = parsed
        self.own = own
        self.recursive = _recursive(parsed, ())


class AvroCodec(Generic[T]):
    """Avro bodies of values of one type.

    Args:
        kind: a dataclass, a struct or any type that `infer` takes; `dict` with a `schema` leaves values plain.
        schema: the Avro schema, if not that of `kind`.

    Raises:
        CannotInfer: `kind` has no schema.
    """

    def __init__(self, kind: type[T], schema: AvroSchema | None = None) -> None:
        self.kind = kind
        inferred = infer_named(kind) if schema is None or is_record(kind) else None
        if schema is None:
            assert inferred is not None
            schema = inferred.schema
        self.schema: AvroSchema = schema
        self.schema_text: str = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        self._parsed = fastavro.parse_schema(json.loads(self.schema_text))
        self._reader = fastavro.parse_schema(json.loads(self.schema_text))
        self._out: Convert | None = None
        self._in_own: Convert | None = None
        self._in_other: Convert | None = None
        self._typed = inferred is not None
        if inferred is not None:
            self._out = outward(kind, inferred.names)
            self._in_own = inward(kind, inferred.names, own=True)
            self._in_other = inward(kind, inferred.names, own=False)
            _mark(self._reader, {name: record for record, name in inferred.names.items() if is_record(record)}, set())
        self._writers: dict[int, _Writer] = {}
        self._own = _Writer(self._parsed, own=True)
        self._may_refuse = (
            self._own.recursive
            or "logicalType" in self.schema_text
            or (inferred is not None and any(_has_rules(named) for named in inferred.names))
        )
        """Whether the type may refuse a body of the schema. Then bodies are decoded as a check before sending."""

    @property
    def name(self) -> str:
        """Full name of the record, or name of the type."""
        if isinstance(self.schema, dict):
            name = str(self.schema.get("name", self.schema["type"]))
            namespace = self.schema.get("namespace")
            return f"{namespace}.{name}" if namespace and "." not in name else name
        return "union" if isinstance(self.schema, list) else self.schema

    def encode(self, value: T, prefix: bytes = b"") -> bytes:
        """Return `prefix` and the body.

        Raises:
            Unencodable: the value does not fit the schema.
        """
        out = io.BytesIO()
        out.write(prefix)
        try:
            plain: Any = value if self._out is None else self._out(value)
            fastavro.schemaless_writer(out, self._parsed, plain)
        except (
            ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, decimal.DecimalException
        ) as problem:  # fmt: skip
            raise Unencodable(f"{value!r:.200} does not fit {self.name}: {self._misfit(value, problem)}") from None
        data = out.getvalue()
        if self._may_refuse:
            try:
                self._read(data, self._own, len(prefix))
            except Exception as problem:  # noqa: BLE001 - the class's own code runs too
                raise Unencodable(
                    f"{value!r:.200} could not be read again as {self.name}: {problem or type(problem).__name__}"
                ) from None
        return data

    def _misfit(self, value: T, problem: Exception) -> str:
        try:
            plain: Any = value if self._out is None else self._out(value)
            fastavro.validation.validate(plain, self._parsed, raise_errors=True)
        except fastavro.validation.ValidationError as misfit:
            # Each branch of a union has an error; the first names the intended branch or is as good as any.
            first = next(
                (error for error in misfit.errors if isinstance(error, fastavro.validation.ValidationErrorData)), None
            )
            if first is not None and first.field:
                held = type(first.datum).__name__
                return f"{first.field} is {first.datum!r:.80}, {held}, and has to be {first.schema!s:.80}"
        except Exception:  # noqa: BLE001, S110 - inspecting an unwritable value may raise anything
            pass
        return str(problem) or type(problem).__name__

    def add_writer(self, schema_id: int, text: str) -> None:
        """Register the writer schema of an id; raise `Undecodable` if it is no Avro schema."""
        try:
            parsed = fastavro.parse_schema(json.loads(text))
        except Exception as problem:  # noqa: BLE001 - others' schemas: fastavro raises nearly anything
            raise Undecodable(f"schema {schema_id} cannot be used: {problem or type(problem).__name__}") from None
        self._writers[schema_id] = _Writer(parsed, own=parsed == self._parsed)

    def knows(self, schema_id: int) -> bool:
        return schema_id in self._writers

    def decode(self, data: bytes | memoryview, schema_id: int, start: int = 0) -> T:
        """Decode the body at `start`, written with that id's schema.

        Raise `Undecodable` if it is damaged or does not match.
        """
        try:
            return self._read(data, self._writers[schema_id], start)
        except Exception as problem:  # noqa: BLE001 - a damaged body makes fastavro raise nearly anything
            raise Undecodable(
                f"the body written with schema {schema_id} cannot be read as {self.name}: {problem or type(problem).__name__}"
            ) from None

    def _read(self, data: bytes | memoryview, writer: _Writer, start: int) -> T:
        source = io.BytesIO(data)
        source.seek(start)
        read = fastavro.schemaless_reader
        if writer.recursive and len(data) - start > _SHORT:
            read = careful_reader.schemaless_reader  # slower, but raises RecursionError where the native one crashes
        if writer.own:
            plain, convert = read(source, writer.parsed, None, return_named_type=self._typed), self._in_own
        else:
            plain, convert = read(source, writer.parsed, self._reader), self._in_other
        if source.read(1):
            raise ValueError("bytes are left over after it")
        return cast("T", plain if convert is None else convert(plain))


def _has_rules(kind: type) -> bool:
    return is_record(kind) and (
        is_model(kind)
        or hasattr(kind, "__post_init__")
        or (dataclasses.is_dataclass(kind) and not kind.__dataclass_params__.init)  # type: ignore[attr-defined]
    )


def _mark(schema: Any, classes: dict[str, type], seen: set[int]) -> None:
    """Make a reader schema mark records' classes and missing fields.

    Both use fastavro's defaults: an extra field that no writer has carries the class, and `USE_DEFAULT` leaves a
    default to the class.
    """
    if isinstance(schema, list):
        for member in schema:
            _mark(member, classes, seen)
    elif isinstance(schema, dict) and id(schema) not in seen:
        seen.add(id(schema))
        for part in ("type", "items", "values", "__named_schemas"):
            _mark(schema.get(part), classes, seen)
        if schema.get("type") is None:  # the table of named schemas
            _mark(list(schema.values()), classes, seen)
        parts = schema.get("fields")
        if parts is None or id(parts) in seen:
            return
        seen.add(id(parts))
        for part in parts:
            _mark(part["type"], classes, seen)
        kind = classes.get(schema["name"])
        if kind is not None:
            optional = {field.name for field in fields(kind) if field.optional}
            for part in parts:
                if part["name"] in optional:
                    part["default"] = USE_DEFAULT
            parts.append({"name": CLASS_OF, "type": "null", "default": kind})


def _recursive(schema: Any, around: tuple[str, ...]) -> bool:
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_recursive(member, around) for member in schema)
    if "name" in schema:
        around = (*around, schema["name"])
    parts = [schema[part] for part in ("type", "items", "values") if part in schema]
    parts += [field["type"] for field in schema.get("fields", ())]
    return any(_recursive(part, around) for part in parts)
