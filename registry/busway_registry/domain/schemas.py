"""A registered schema: equality and GUID.

Here: the request, its checked and canonical form, identity.
Not here: storage (`store`), Avro (`domain.avro`).
"""

import hashlib
import json
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from busway_registry.domain.avro.canonical import canonical
from busway_registry.domain.avro.parser import AvroError, Parsed, parse
from busway_registry.domain.errors import invalid_schema

AVRO: Final = "AVRO"
SCHEMA_TYPES: Final = (AVRO,)

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A named type of another subject; `version` is a number."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """A client's request: `text` as sent, `schema_type` in capitals, `version` and `id` only if demanded."""

    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    version: int | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    text: str
    schema_type: str
    references: tuple[Reference, ...]
    metadata: Json | None
    rule_set: Json | None

    @property
    def guid(self) -> uuid.UUID:
        """Equal in all registries with this schema: MD5 of `identity` (Confluent 8.0)."""
        return uuid.UUID(bytes=hashlib.md5(b"".join(self.identity()), usedforsecurity=False).digest())

    @property
    def fingerprint(self) -> str:
        """Unique in the store: SHA-256 of everything, in hexadecimal; `identity` does not distinguish tags from
        properties.
        """
        references = [[reference.name, reference.subject, reference.version] for reference in self.references]
        everything = [self.schema_type, self.text, references, self.metadata, self.rule_set]
        return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()

    def identity(self) -> Iterable[bytes]:
        """The bytes behind the GUID, in Confluent's order."""
        yield self.text.encode()
        for reference in self.references:
            yield reference.name.encode() + reference.subject.encode() + struct.pack(">i", reference.version)
        if self.metadata:
            yield b"\1"
            yield from _mapping_of_lists(self.metadata.get("tags"))
            yield from _mapping(self.metadata.get("properties"))
            yield from (name.encode() for name in sorted(set(self.metadata.get("sensitive") or ())))
        if self.rule_set:
            yield b"\1"
            for kind in ("migrationRules", "domainRules", "encodingRules"):
                for rule in self.rule_set.get(kind) or ():
                    yield from _rule(rule)
            yield (self.rule_set.get("enableAt") or "").encode()


def build(request: SchemaRequest, reference_texts: Iterable[str], *, normalize: bool) -> Artifact:
    """Return the checked, canonical form; raises 42201, empty, invalid, or of an unsupported type."""
    if request.schema_type not in SCHEMA_TYPES:
        raise invalid_schema(f"schema type {request.schema_type} is not served; use {', '.join(SCHEMA_TYPES)}")
    if not request.text.strip():
        raise invalid_schema("it is empty")
    texts = list(reference_texts)
    parsed = _parse(request.text, texts)
    references = request.references
    if normalize:
        references = tuple(sorted(dict.fromkeys(references), key=lambda reference: reference.name))
    text = canonical(parsed.schema, normalize=normalize, referenced=parsed.referenced)
    if normalize:
        _parse(text, texts)  # Java's normal form loses some names; unreadable results are refused
    return Artifact(
        text=text,
        schema_type=request.schema_type,
        references=references,
        metadata=request.metadata or None,
        rule_set=request.rule_set or None,
    )


def _parse(text: str, reference_texts: Iterable[str]) -> Parsed:
    try:
        return parse(text, reference_texts)
    except AvroError as problem:
        raise invalid_schema(str(problem)) from None


def _mapping_of_lists(mapping: Any) -> Iterable[bytes]:
    for name, values in sorted((mapping or {}).items()):
        yield name.encode()
        yield from (value.encode() for value in sorted(set(values)))


def _mapping(mapping: Any) -> Iterable[bytes]:
    for name, value in sorted((mapping or {}).items()):
        yield name.encode()
        yield value.encode()


def _rule(rule: Json) -> Iterable[bytes]:
    words = {"kind": "TRANSFORM", "mode": "WRITEREAD", **rule}
    for word in ("name", "doc", "kind", "mode", "type"):
        yield (words.get(word) or "").encode()
    yield from (tag.encode() for tag in sorted(set(rule.get("tags") or ())))
    yield from _mapping(rule.get("params"))
    for word in ("expr", "onSuccess", "onFailure"):
        yield (words.get(word) or "").encode()
    if rule.get("disabled"):
        yield b"\1"
