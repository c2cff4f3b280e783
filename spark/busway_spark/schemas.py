"""Writer schemas of a topic's values.

Here: a subject's versions with references resolved, split into those readable as one table and the others with
reasons.
Not here: decoding (`avro`).

Only the driver requests the registry, never executors.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from busway import AvroCodec, BuswayError, RegistryClient, RegistryRefused

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
Reader = int | str | type | None
"""Reader schema: newest (None), a version's number, JSON text, or event class."""


class NoSchema(BuswayError):
    """The registry has no schema for the topic; the text has the subject."""


class NoColumns(BuswayError):
    """A schema cannot become columns: not an Avro record, or recursive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """The versions of a subject.

    Attributes:
        writers: schema id → JSON text, of versions readable as `reader`.
        others: schema id → why its records are not.
        reader: JSON text of the reader schema.
    """

    subject: str
    writers: dict[int, str]
    others: dict[int, str]
    reader: str

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self.writers) | frozenset(self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a subject; `schema` is parsed JSON, None if not Avro."""

    number: int
    id: int
    kind: str
    schema: Any


def schemas_of(registry_url: str, topic: str, *, subject: str | None = None, reader: Reader = None) -> Schemas:
    """Return the registry's current schemas of a topic's values.

    Args:
        subject: by default `<topic>-value`; another with naming by record name.

    Raises:
        NoSchema: none, or not the reader's version.
        NoColumns: the reader schema is not an Avro record, or recursive.
        RegistryUnreachable: no answer.
    """
    name = subject or f"{topic}-value"
    versions = asyncio.run(versions_of(registry_url, name))
    chosen = _reader(versions, reader, name)
    _check_columns(chosen, name)
    writers, others = {}, {}
    names = {chosen["name"].rpartition(".")[2], *(alias.rpartition(".")[2] for alias in chosen.get("aliases", ()))}
    for version in versions:
        if version.kind != "AVRO" or not isinstance(version.schema, dict) or version.schema.get("type") != "record":
            others[version.id] = f"version {version.number} of {name} is no Avro record"
        elif (record := version.schema["name"].rpartition(".")[2]) not in names:
            others[version.id] = f"another record type: {record}, version {version.number} of {name}"
        else:
            writers[version.id] = json.dumps(version.schema)
    if not writers:
        raise NoSchema(f"no version of {name} in {registry_url} is a record that could be read as {chosen['name']}")
    return Schemas(subject=name, writers=writers, others=others, reader=json.dumps(chosen))


async def versions_of(registry_url: str, subject: str) -> "list[Version]":
    """Return all versions of a subject, with references resolved.

    Raises:
        NoSchema: no such subject.
        RegistryUnreachable: no answer.
    """
    async with RegistryClient(registry_url) as registry:
        try:
            numbers = await registry.versions(subject)
        except RegistryRefused as problem:
            raise NoSchema(
                f"{registry_url} has no subject {subject}; write a first event, or register its schema ({problem})"
            ) from None
        return [await _version(registry, subject, number) for number in numbers]


async def _version(registry: RegistryClient, subject: str, number: int) -> Version:
    response = await registry.request("GET", f"/subjects/{quote(subject, safe='')}/versions/{number}")
    kind = response.get("schemaType", "AVRO")
    if kind != "AVRO":
        return Version(number=number, id=response["id"], kind=kind, schema=None)
    referred: dict[str, Any] = {}
    await _collect(registry, response, referred)
    return Version(
        number=number, id=response["id"], kind=kind, schema=_in_place(_parsed(response["schema"]), "", referred, set())
    )


async def _collect(registry: RegistryClient, version: Any, referred: dict[str, Any]) -> None:
    for reference in version.get("references") or ():
        if reference["name"] not in referred:
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            response = await registry.request("GET", path)
            referred[reference["name"]] = _parsed(response["schema"])
            await _collect(registry, response, referred)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a bare type name, as in some registries


def _in_place(schema: Any, namespace: str, referred: dict[str, Any], defined: set[str]) -> Any:
    """Replace each reference by its schema at its first use."""
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        name = next((candidate for candidate in (full, schema) if candidate in referred), None)
        if schema in PRIMITIVES or name is None or name in defined:
            return schema
        return _in_place(referred[name], "", referred, defined)
    if isinstance(schema, list):
        return [_in_place(member, namespace, referred, defined) for member in schema]
    kind = schema["type"]
    if kind in NAMED:
        full = full_name(schema, namespace)
        defined.add(full)
        namespace = full.rpartition(".")[0]
    result = dict(schema)
    if kind in {"record", "error"}:
        result["fields"] = [
            {**field, "type": _in_place(field["type"], namespace, referred, defined)} for field in schema["fields"]
        ]
    elif kind == "array":
        result["items"] = _in_place(schema["items"], namespace, referred, defined)
    elif kind == "map":
        result["values"] = _in_place(schema["values"], namespace, referred, defined)
    elif kind not in NAMED and kind not in PRIMITIVES:
        result["type"] = _in_place(kind, namespace, referred, defined)
    return result


def full_name(schema: dict[str, Any], namespace: str) -> str:
    """Return a named type's full name inside a namespace (Avro 1.12, "Names")."""
    name = str(schema["name"])
    if "." in name:
        return name
    space = schema.get("namespace", namespace)
    return f"{space}.{name}" if space else name


def _reader(versions: list[Version], reader: Reader, subject: str) -> Any:
    if isinstance(reader, type):
        return json.loads(AvroCodec(reader).schema_text)
    if isinstance(reader, str):
        return _parsed(reader)
    if reader is None:
        newest = versions[-1]
    else:
        chosen = [version for version in versions if version.number == reader]
        if not chosen:
            raise NoSchema(
                f"{subject} has no version {reader}; it has {', '.join(str(version.number) for version in versions)}"
            )
        newest = chosen[0]
    if newest.kind != "AVRO":
        raise NoColumns(f"version {newest.number} of {subject} is {newest.kind}; only Avro becomes columns")
    return newest.schema


def _check_columns(schema: Any, subject: str) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise NoColumns(f"only a record can become columns, the schema of {subject} is {json.dumps(schema):.80}")
    if _refers_to_itself(schema, "", ()):
        raise NoColumns(f"the schema of {subject} refers to itself, which columns cannot; read it as another `reader`")


def _refers_to_itself(schema: Any, namespace: str, around: tuple[str, ...]) -> bool:
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        return full in around
    if isinstance(schema, list):
        return any(_refers_to_itself(member, namespace, around) for member in schema)
    kind = schema["type"]
    if kind in {"record", "error"}:
        full = full_name(schema, namespace)
        inside = (*around, full)
        return any(_refers_to_itself(field["type"], full.rpartition(".")[0], inside) for field in schema["fields"])
    if kind in NAMED:
        return False
    return _refers_to_itself(schema.get("items", schema.get("values", kind)), namespace, around)
