"""Every message definition equals the one inside the kafka-clients 4.3.1 jar, field by field, both ways."""

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from tools.jars import kafka_libs

from busway_bus.handlers.for_controllers.registry import HANDLERS as CONTROLLER_HANDLERS
from busway_bus.handlers.registry import HANDLERS, ON_CONTROLLER_LISTENERS
from busway_protocol.apis import APIS, ApiKey
from busway_protocol.headers import RequestHeader, ResponseHeader
from busway_protocol.principals import DefaultPrincipalData
from busway_protocol.schema import NEVER, Field, fields_of, info_of
from busway_protocol.types import ZERO_UUID

pytestmark = pytest.mark.java

CLASSES = [cls for api in APIS.values() for cls in (api.request, api.response)]
UNSTABLE_MAX = {"InitProducerIdRequest": 5, "InitProducerIdResponse": 5}
"""Versions that Kafka defines but does not serve."""


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """Kafka's definitions by message name."""
    definitions = {}
    with zipfile.ZipFile(kafka_libs() / "kafka-clients-4.3.1.jar") as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = "\n".join(
                    re.sub(r"(^|[\s,\]}])//.*$", r"\1", line) for line in jar.read(name).decode().splitlines()
                )
                definition = json.loads(text)
                definitions[definition["name"]] = definition
    return definitions


def span(text: str, low: int, high: int) -> tuple[int, int] | None:
    """A version range, cut to the versions that are served; None where it is empty."""
    if text == "none":
        return None
    first, _, last = text.partition("-")
    start = int(first.rstrip("+"))
    end = high if first.endswith("+") else int(last or first)
    start, end = max(start, low), min(end, high)
    return (start, end) if start <= end else None


def versions_of(field: dict[str, Any]) -> str:
    """In which versions a field exists; one that is always tagged need not say it twice."""
    return str(field.get("versions") or field["taggedVersions"])


def snake(name: str) -> str:
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name)).lower()


def their_default(field: dict[str, Any]) -> Any:
    kind = field["type"]
    given = field.get("default")
    if kind.startswith("[]"):
        return None if given == "null" else []
    if kind == "string":
        return None if given == "null" else given or ""
    if kind == "bytes":
        return None if given == "null" else b""
    if kind == "records":
        return None
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "uuid":
        return ZERO_UUID
    if kind == "float64":
        return float(given or 0)
    if kind.startswith(("int", "uint")):
        return int(str(given or 0), 0)
    return None if given == "null" else "a structure"


def our_default(field: Field) -> Any:
    if field.struct is not None and not field.is_array and field.default is not None:
        return "a structure"
    return field.default


def compare(
    cls: type[Any], fields: list[dict[str, Any]], shared: dict[str, Any], low: int, high: int, path: str
) -> Iterator[str]:
    """Every difference between our class and their fields, as text."""
    ours = {field.name: field for field in fields_of(cls)}
    served = [field for field in fields if span(versions_of(field), low, high)]
    if list(ours) != [snake(field["name"]) for field in served]:
        yield f"{path}: fields {list(ours)} != {[snake(field['name']) for field in served]}"
        return
    for their in served:
        our = ours[snake(their["name"])]
        where = f"{path}.{our.name}"
        versions = span(versions_of(their), low, high)
        assert versions is not None
        yield from differ(where, "versions", (max(our.since, low), min(our.until, high)), versions)
        nullable = span(their.get("nullableVersions", "none"), *versions)
        ours_nullable = (max(our.nullable_since, versions[0]), min(our.nullable_until, versions[1]))
        if their["type"] != "records":
            yield from differ(
                where, "nullable versions", ours_nullable if ours_nullable[0] <= ours_nullable[1] else None, nullable
            )
        yield from differ(where, "tag", our.tag, their.get("tag"))
        tagged = span(their.get("taggedVersions", "none"), low, high)
        yield from differ(
            where, "tagged", None if our.tagged_since == NEVER else max(our.tagged_since, low), tagged and tagged[0]
        )
        yield from differ(where, "ignorable", our.ignorable, their.get("ignorable", False))
        yield from differ(where, "flexible", our.flexible, their.get("flexibleVersions") != "none")
        yield from differ(where, "entity", our.entity, their.get("entityType"))
        yield from differ(where, "array", our.is_array, their["type"].startswith("[]"))
        yield from differ(where, "default", our_default(our), their_default(their))
        element = their["type"].removeprefix("[]")
        if our.struct is None:
            yield from differ(where, "type", our.kind and our.kind.value, element)
        else:
            inner = their.get("fields") or shared[element]
            yield from compare(our.struct, inner, shared, low, high, where)


def differ(where: str, what: str, ours: Any, theirs: Any) -> Iterator[str]:
    if ours != theirs:
        yield f"{where}: {what} {ours!r} != {theirs!r}"


@pytest.mark.parametrize("cls", [*CLASSES, RequestHeader, ResponseHeader, DefaultPrincipalData])
def test_the_definition_equals_kafkas(cls: type[Any], theirs: dict[str, Any]) -> None:
    """Names, order, types, versions, nullability, tags, defaults, entities: no difference either way."""
    definition = theirs[cls.__name__]
    info = info_of(cls)
    low, high = span(definition["validVersions"], 0, 99) or (0, 0)
    high = UNSTABLE_MAX.get(cls.__name__, high)
    flexible = span(definition["flexibleVersions"], 0, NEVER)
    assert (info.min_version, info.max_version) == (low, high)
    assert (None if info.flexible_since == NEVER else info.flexible_since) == (flexible and flexible[0])
    assert info.api_key == definition.get("apiKey")
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    assert list(compare(cls, definition["fields"], shared, low, high, cls.__name__)) == []


def test_each_api_is_served_on_kafkas_listeners(theirs: dict[str, Any]) -> None:
    """Those of brokers, and those of controllers but for the APIs between voters: a combined node is the only one."""
    listeners = {
        definition["apiKey"]: set(definition.get("listeners", ()))
        for definition in theirs.values()
        if definition["type"] == "request"
    }
    assert [key for key in HANDLERS if "broker" not in listeners[key]] == []
    of_controllers = {key for key in HANDLERS if "controller" in listeners[key]}
    assert of_controllers - {ApiKey.FETCH} == ON_CONTROLLER_LISTENERS
    assert [key for key in CONTROLLER_HANDLERS if "controller" not in listeners[key]] == []
