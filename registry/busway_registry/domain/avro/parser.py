"""JSON text → a checked schema tree, by the rules of Avro's Java parser.

Here: syntax, names, references, defaults.
Not here: compatibility, writing.

Python's libraries accept schemas that Java refuses (duplicate fields, illegal names, wrong defaults) and refuse others
that Java accepts. Source: Avro 1.11 specification; verdicts compared with Confluent's Java client 7.5.3.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway_registry.domain.avro.json_text import BadJson, load_json
from busway_registry.domain.avro.schema import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

_JAVA_DOUBLE: Final = re.compile(
    r"\s*[+-]?(?:NaN|Infinity|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d+)?[fFdD]?)\s*\Z", re.ASCII
)
_COMPLEX: Final = frozenset({"record", "error", "enum", "fixed", "array", "map"})
_SCHEMA_WORDS: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_WORDS: Final = _SCHEMA_WORDS | {"default"}
_FIELD_WORDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = frozenset({"ascending", "descending", "ignore"})
_DEEPEST: Final = 64
"""Limit on nesting: far above any schema in use, far below the interpreter's stack."""
_SIZES: Final = range(2**31 - 8)
"""Limited by Java's longest array."""
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)


class AvroError(ValueError):
    """The text is not an Avro schema; the message has place and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A schema, and the names of its types from references."""

    schema: Schema
    referenced: frozenset[str]


def parse(text: str, references: Iterable[str] = ()) -> Parsed:
    """Parse `text`, which may use types of `references`, dependencies first.

    Raises:
        AvroError: the text or a reference is invalid.
    """
    parser = _Parser()
    for reference in references:
        parser.read(reference)
    referenced = frozenset(parser.named)
    return Parsed(schema=parser.read(text), referenced=referenced)


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, Named] = {}

    def read(self, text: str) -> Schema:
        try:
            value = load_json(text)
        except BadJson as problem:
            raise AvroError(str(problem)) from None
        return self._schema(value, namespace="", at="schema", depth=0)

    def _schema(self, given: Any, *, namespace: str, at: str, depth: int) -> Schema:
        if depth > _DEEPEST:
            raise AvroError(f"{at} is nested more than {_DEEPEST} levels deep")
        if isinstance(given, str):
            return self._by_name(given, namespace, at)
        if isinstance(given, list):
            return self._union(given, namespace, at, depth)
        if not isinstance(given, dict):
            raise AvroError(f"{at}: a schema is a name, an object or an array, not {_shown(given)}")
        kind = given.get("type")
        if not isinstance(kind, str):
            raise AvroError(f"{at}: no type: {_shown(given)}; type is a name, and another schema is not wrapped in it")
        if kind in PRIMITIVES:
            return Primitive(type=kind, properties=_properties(given, _SCHEMA_WORDS))
        if kind == "array":
            items = self._part(given, "items", at)
            schema = self._schema(items, namespace=namespace, at=f"{at}.items", depth=depth + 1)
            return Array(items=schema, properties=_properties(given, _SCHEMA_WORDS))
        if kind == "map":
            values = self._part(given, "values", at)
            schema = self._schema(values, namespace=namespace, at=f"{at}.values", depth=depth + 1)
            return Map(values=schema, properties=_properties(given, _SCHEMA_WORDS))
        if kind in _COMPLEX:
            return self._named(given, kind, namespace, at, depth)
        return self._by_name(kind, namespace, at, wrapped=True)

    def _by_name(self, name: str, namespace: str, at: str, *, wrapped: bool = False) -> Schema:
        if name in PRIMITIVES:
            return Primitive(type=name)
        names = [_qualified(name, namespace)]
        if not wrapped:  # Java also looks outside the namespace, but not for `{"type": name}`
            names.append(name)
        for full in names:
            if full in self.named:
                schema = self.named[full]
                assert isinstance(schema, Record | Enum | Fixed)
                return schema
        raise AvroError(f'{at}: "{name}" is not a defined name. Define the type before it is used, or add a reference')

    def _union(self, given: list[Any], namespace: str, at: str, depth: int) -> Union:
        branches: list[Schema] = []
        seen: set[str] = set()
        for number, member in enumerate(given):
            branch = self._schema(member, namespace=namespace, at=f"{at}[{number}]", depth=depth + 1)
            if isinstance(branch, Union):
                raise AvroError(f"{at}[{number}]: a union may not hold another union")
            name = branch.name if isinstance(branch, Named) else branch.type
            if name in seen:
                raise AvroError(f"{at}: duplicate in union: {name}")
            seen.add(name)
            branches.append(branch)
        return Union(branches=tuple(branches))

    def _named(self, given: Mapping[str, Any], kind: str, namespace: str, at: str, depth: int) -> Schema:
        name = _full_name(given, namespace, at)
        own_namespace = name.rpartition(".")[0]
        doc = given.get("doc")
        common: dict[str, Any] = {
            "type": kind,
            "name": name,
            "doc": doc if isinstance(doc, str) else None,
            "aliases": tuple(dict.fromkeys(_alias(alias, own_namespace, at) for alias in _aliases(given, at))),
            "properties": _properties(given, _ENUM_WORDS if kind == "enum" else _SCHEMA_WORDS),
        }
        if kind == "enum":
            return self._define(_enum(given, common, at), at)
        if kind == "fixed":
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size not in _SIZES:
                raise AvroError(f"{at}: fixed {name} needs a size from 0 to {_SIZES[-1]}, not {_shown(size)}")
            return self._define(Fixed(**common, size=size), at)
        record = Record(**common)
        self._define(record, at)
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise AvroError(f"{at}: record {name} has no array of fields")
        record.set_fields(self._fields(fields, name, own_namespace, depth))
        return record

    def _define(self, schema: Record | Enum | Fixed, at: str) -> Schema:
        if schema.name in PRIMITIVES:
            raise AvroError(f"{at}: {schema.name} is the name of a primitive type")
        if schema.name in self.named:
            raise AvroError(f"{at}: can't redefine: {schema.name}")
        self.named[schema.name] = schema
        return schema

    def _fields(self, given: list[Any], record: str, namespace: str, depth: int) -> tuple[Field, ...]:
        fields: list[Field] = []
        seen: set[str] = set()
        for number, given_field in enumerate(given):
            if not isinstance(given_field, dict):
                raise AvroError(f"{record}: field {number} is {_shown(given_field)}, not an object")
            name = given_field.get("name")
            if not isinstance(name, str) or not _is_name(name):
                raise AvroError(f"{record}: {_shown(name)} is not a valid name of a field; letters, digits and _ are")
            if name in seen:
                raise AvroError(f"{record}: duplicate field {name}")
            seen.add(name)
            at = f"{record}.{name}"
            if "type" not in given_field:
                raise AvroError(f"{at}: no type")
            schema = self._schema(given_field["type"], namespace=namespace, at=at, depth=depth + 1)
            order = given_field.get("order", "ascending")
            if not isinstance(order, str) or order.lower() not in _ORDERS:
                raise AvroError(f"{at}: order is ascending, descending or ignore, not {_shown(order)}")
            doc = given_field.get("doc")
            field = Field(
                name=name,
                schema=schema,
                default=_default(given_field, schema, at),
                doc=doc if isinstance(doc, str) else None,
                order=order.lower(),
                aliases=tuple(_aliases(given_field, at)),
                properties=_properties(given_field, _FIELD_WORDS),
            )
            spelt = schema.type in {"float", "double"} and field.default in _NOT_FINITE
            if field.default is not MISSING and not spelt and not _fits(field.schema, field.default):
                raise AvroError(f"{at}: invalid default {_shown(field.default)}; it must fit {_expected(field.schema)}")
            fields.append(field)
        return tuple(fields)

    @staticmethod
    def _part(given: Mapping[str, Any], name: str, at: str) -> Any:
        if name not in given:
            raise AvroError(f"{at}: {given['type']} has no {name}")
        return given[name]


def _enum(given: Mapping[str, Any], common: Mapping[str, Any], at: str) -> Enum:
    symbols = given.get("symbols")
    if not isinstance(symbols, list):
        raise AvroError(f"{at}: enum {common['name']} has no array of symbols")
    seen: set[str] = set()
    for symbol in symbols:
        if not isinstance(symbol, str) or not _is_name(symbol):
            raise AvroError(f"{at}: illegal symbol {_shown(symbol)}; letters, digits and _ are allowed")
        if symbol in seen:
            raise AvroError(f"{at}: duplicate symbol {symbol}")
        seen.add(symbol)
    default = given.get("default")
    if not isinstance(default, str):
        default = None
    elif default not in seen:
        raise AvroError(f"{at}: the default {_shown(default)} of enum {common['name']} is not one of its symbols")
    return Enum(**common, symbols=tuple(symbols), default=default)


def _full_name(given: Mapping[str, Any], namespace: str, at: str) -> str:
    name = given.get("name")
    if not isinstance(name, str):
        raise AvroError(f"{at}: {given['type']} has no name")
    if "." in name:
        space, _, short = name.rpartition(".")
    else:
        own = given.get("namespace", namespace)
        space, short = own if isinstance(own, str) else namespace, name
    if not _is_name(short):
        raise AvroError(f"{at}: illegal name {_shown(name)}; letters, digits and _ are allowed, no digit first")
    return f"{space}.{short}" if space else short


def _is_name(text: str) -> bool:
    """Accept letters, digits and _, no digit first; like Java, letters of any alphabet (basic plane)."""
    return bool(text) and not text[0].isdecimal() and all(_may_be_in_name(character) for character in text)


def _may_be_in_name(character: str) -> bool:
    return character == "_" or (character <= "\uffff" and (character.isalpha() or character.isdecimal()))


def _qualified(name: str, namespace: str) -> str:
    if "." in name:
        return name.removeprefix(".") if name.rpartition(".")[0] == "" else name
    return f"{namespace}.{name}" if namespace else name


def _alias(alias: str, namespace: str, at: str) -> str:
    if not _is_name(alias.rpartition(".")[2]):
        raise AvroError(f"{at}: illegal alias {_shown(alias)}; letters, digits and _ are allowed, no digit first")
    return _qualified(alias, namespace)


def _aliases(given: Mapping[str, Any], at: str) -> list[str]:
    aliases = given.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise AvroError(f"{at}: aliases is not an array of names")
    return list(dict.fromkeys(aliases))


def _properties(given: Mapping[str, Any], words: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in words}


def _default(field: Mapping[str, Any], schema: Schema, at: str) -> Any:
    """Return a field's default. Like Java, accepts text for a float or double, for values that JSON numbers lack."""
    value = field.get("default", MISSING)
    if not isinstance(value, str) or schema.type not in {"float", "double"}:
        return value
    if not _JAVA_DOUBLE.match(value):
        raise AvroError(f"{at}: invalid default {_shown(value)}; it must fit {schema.type}")
    number = float(value.strip().rstrip("fFdD"))
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def _fits(schema: Schema, value: Any) -> bool:
    """Return whether a JSON value is a valid default. A union's default has its first branch's type (Avro 1.11)."""
    if isinstance(schema, Record):
        # Iterates over the value, not the fields: many `{}` for a record of many fields stay cheap.
        return (
            schema.complete  # a record still being read cannot have a default of its own type
            and isinstance(value, dict)
            and all(name in value for name in schema.required)
            and all(_fits(schema.by_name[name].schema, part) for name, part in value.items() if name in schema.by_name)
        )
    if isinstance(schema, Union):
        return bool(schema.branches) and _fits(schema.branches[0], value)
    if isinstance(schema, Array):
        return isinstance(value, list) and all(_fits(schema.items, item) for item in value)
    if isinstance(schema, Map):
        return isinstance(value, dict) and all(_fits(schema.values, item) for item in value.values())
    if isinstance(schema, Enum | Fixed) or schema.type in {"bytes", "string"}:
        return isinstance(value, str)
    if schema.type == "null":
        return value is None
    if schema.type == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if schema.type in {"float", "double"}:
        return isinstance(value, int | float)
    return isinstance(value, int) and value in (_INT if schema.type == "int" else _LONG)


def _expected(schema: Schema) -> str:
    if isinstance(schema, Union):
        return f"the first branch of the union, {_expected(schema.branches[0])}" if schema.branches else "nothing"
    return f"{schema.type} {schema.name}" if isinstance(schema, Named) else schema.type


def _shown(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:120] + "…"
