"""Hypothesis strategies for Avro schemas: valid ones, near misses, and pairs where one grew out of the other.

Here: making JSON from small pools of names, so that things meet.
Not here: judging it.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

Json: TypeAlias = Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES = ("R", "S", "E", "F", "a.R", "b.S", "record", "a.string")
NAMESPACES = ("", "a", "b", "a-b", "a.b")
FIELDS = ("f", "g", "h", "i")
SYMBOLS = ("A", "B", "C", "D")
ALIASES = ("R", "a.R", "b.S", "S", "E", ".F")
VALUES = (
    None, True, False, 0, 1, -1, 2**24, 2**32, -(2**63), 1.0, 0.5, -0.0, 1e20, 1e-7, 12345.125, 1e7, "", "A", "1.5", "NaN",
    "é\u2028\u007f\t\u001f\\u001f", "\u0100", [], [1], ["A"], [{"b": 1, "a": [{"d": 1, "c": 2}]}], {}, {"f": 1},
    {"g": None, "f": "A"}, {"f": {"g": 1, "f": 2.0}},
)  # fmt: skip
"""No whole number beyond 64 bits, which Java's normal form loses; none that JDK 17 and 19 spell differently as a float."""


def _value(draw: st.DrawFn) -> Json:
    return copy.deepcopy(draw(st.sampled_from(VALUES)))


@dataclass
class _Known:
    """Names defined so far, full and in order."""

    names: list[str] = field(default_factory=list)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Json:
    """A schema that Avro should mostly accept."""
    return _schema(draw, depth, "", _Known())


def _schema(draw: st.DrawFn, depth: int, namespace: str, known: _Known, *, union: bool = True) -> Json:
    kinds = ["primitive", "primitive", "property"]
    if known.names:
        kinds += ["known", "known"]
    if depth > 0:
        kinds += ["record", "record", "record", "enum", "fixed", "array", "map"] + (["union", "union"] if union else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "property":
        return {"type": draw(st.sampled_from(PRIMITIVES)), **_properties(draw)}
    if kind == "known":
        name = draw(st.sampled_from(known.names))
        space, _, short = name.rpartition(".")
        return short if space == namespace and draw(st.booleans()) else name
    if kind == "array":
        return {"type": "array", "items": _schema(draw, depth - 1, namespace, known), **_properties(draw)}
    if kind == "map":
        return {"type": "map", "values": _schema(draw, depth - 1, namespace, known), **_properties(draw)}
    if kind == "union":
        branches: list[Json] = []
        seen: set[str] = set()
        for _ in range(draw(st.integers(0, 3))):
            branch = _schema(draw, depth - 1, namespace, known, union=False)
            mark = branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))
            if mark not in seen:
                seen.add(mark)
                branches.append(branch)
        return branches
    return _named(draw, kind, depth, namespace, known)


def _named(draw: st.DrawFn, kind: str, depth: int, namespace: str, known: _Known) -> Json:
    name = draw(st.sampled_from(NAMES))
    made: dict[str, Json] = {"type": kind, "name": name}
    own = namespace
    if draw(st.booleans()):
        made["namespace"] = draw(st.sampled_from(NAMESPACES))
        own = made["namespace"]
    full = _full(name, own)
    space = full.rpartition(".")[0]
    if full in known.names:
        return full
    if kind == "record":
        known.names.append(full)
    if draw(st.integers(0, 3)) == 0:
        made["doc"] = draw(st.sampled_from(["what it is", "", 'quote " and \\', "ü"]))
    if draw(st.integers(0, 3)) == 0:
        made["aliases"] = draw(st.lists(st.sampled_from(ALIASES), max_size=3))
    if kind == "enum":
        made["symbols"] = draw(st.lists(st.sampled_from(SYMBOLS), unique=True, max_size=4))
        if made["symbols"] and draw(st.integers(0, 2)) == 0:
            made["default"] = draw(st.sampled_from(made["symbols"]))
    elif kind == "fixed":
        made["size"] = draw(st.sampled_from([0, 1, 4, 16]))
    else:
        names = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=4))
        made["fields"] = [_field(draw, name, depth, space, known) for name in names]
    if kind != "record":
        known.names.append(full)
    made.update(_properties(draw))
    return _shuffled(draw, made)


def _field(draw: st.DrawFn, name: str, depth: int, namespace: str, known: _Known) -> Json:
    made: dict[str, Json] = {"name": name, "type": _schema(draw, depth - 1, namespace, known)}
    if draw(st.booleans()):
        made["default"] = default_of(draw, made["type"])
    if draw(st.integers(0, 4)) == 0:
        made["order"] = draw(st.sampled_from(["ascending", "descending", "ignore"]))
    if draw(st.integers(0, 3)) == 0:
        made["aliases"] = draw(st.lists(st.sampled_from(FIELDS), max_size=2))
    if draw(st.integers(0, 4)) == 0:
        made["doc"] = draw(st.sampled_from(["about", ""]))
    made.update(_properties(draw))
    return _shuffled(draw, made)


def _shuffled(draw: st.DrawFn, made: dict[str, Json]) -> dict[str, Json]:
    return {name: made[name] for name in draw(st.permutations(list(made)))} if draw(st.booleans()) else made


def _properties(draw: st.DrawFn) -> dict[str, Json]:
    """What the specification does not name, and logical types, some of them nonsense."""
    if draw(st.integers(0, 2)):
        return {}
    schema_properties: dict[str, Json] = {}
    for name in draw(
        st.lists(
            st.sampled_from(["z", "x", "logicalType", "default", "order", "é", "java-class", "avro.java.string"]),
            unique=True,
            max_size=3,
        )
    ):
        if name == "logicalType":
            schema_properties[name] = draw(
                st.sampled_from(["decimal", "date", "timestamp-millis", "uuid", "duration", "made-up", 7])
            )
            if schema_properties[name] == "decimal":
                schema_properties["precision"] = draw(st.sampled_from([4, 0, 2, "4"]))
                schema_properties["scale"] = draw(st.sampled_from([2, 5]))
        elif name not in {"default", "order"} or draw(st.integers(0, 5)) == 0:
            schema_properties[name] = _value(draw)
    return schema_properties


def default_of(draw: st.DrawFn, schema: Json) -> Json:
    """A default that often fits."""
    if draw(st.integers(0, 5)) == 0:
        return _value(draw)
    if isinstance(schema, list):
        return default_of(draw, schema[0]) if schema else None
    if isinstance(schema, dict):
        kind = schema["type"]
        if kind == "record":
            return {
                schema_field["name"]: default_of(draw, schema_field["type"])
                for schema_field in schema["fields"]
                if "default" not in schema_field or draw(st.booleans())
            }
        if kind == "enum":
            return draw(st.sampled_from([*schema["symbols"], "A"]))
        if kind == "array":
            return [default_of(draw, schema["items"])] if draw(st.booleans()) else []
        if kind == "map":
            return {"k": default_of(draw, schema["values"])} if draw(st.booleans()) else {}
        return "ab" if kind == "fixed" else default_of(draw, kind)
    fits: dict[str, tuple[Json, ...]] = {
        "null": (None,),
        "boolean": (True, False),
        "int": (0, -1, 2**31 - 1),
        "long": (0, 2**31, -(2**63)),
        "float": (0, 1.5, -1),
        "double": (0, 1.5, 1e20, 1e-7),
        "bytes": ("", "\u00ff"),
        "string": ("", "text"),
    }
    return copy.deepcopy(draw(st.sampled_from(fits.get(str(schema), VALUES))))


def _places(made: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    places = [path]
    if isinstance(made, dict):
        for name, value in made.items():
            places += _places(value, (*path, name))
    elif isinstance(made, list):
        for number, value in enumerate(made):
            places += _places(value, (*path, number))
    return places


@st.composite
def mutated(draw: st.DrawFn, made: Json, most: int = 3) -> Json:
    """A copy with one to `most` changes anywhere; it may be valid no more."""
    made = copy.deepcopy(made)
    for _ in range(draw(st.integers(1, most))):
        path = draw(st.sampled_from(_places(made)))
        if not path:
            if draw(st.integers(0, 4)) == 0:
                made = [made, "null"] if isinstance(made, dict | str) else draw(schemas())
            continue
        parent = made
        for step in path[:-1]:
            parent = parent[step]
        _change(draw, parent, path[-1])
    return made


def _change(draw: st.DrawFn, parent: Json, last: Any) -> None:
    here = parent[last]
    if last in {"type", "items", "values"} and draw(st.integers(0, 2)):
        parent[last] = draw(st.one_of(schemas(depth=1), st.sampled_from(NAMES), st.just(["null", here])))
    elif last == "fields" and isinstance(here, list):
        known = _Known()
        name = draw(st.sampled_from(FIELDS))
        here.insert(draw(st.integers(0, len(here))), _field(draw, name, 1, "", known))
    elif last == "symbols" and isinstance(here, list):
        here.append(draw(st.sampled_from([*SYMBOLS, "1x", "Ä", 3, ""])))
    elif draw(st.booleans()):
        del parent[last]
    elif isinstance(parent, dict) and draw(st.booleans()):
        name = draw(
            st.sampled_from(
                ["default", "aliases", "namespace", "doc", "order", "name", "size", "symbols", "logicalType", "type"]
            )
        )
        pool = {
            "aliases": ([draw(st.sampled_from([*FIELDS, *ALIASES]))], "R", [1]),
            "order": ("IGNORE", "up", 1),
            "namespace": NAMESPACES,
            "name": (*NAMES, *FIELDS, "1", "Ä", ".R", "a..R", "a."),
        }
        parent[name] = copy.deepcopy(draw(st.sampled_from(pool.get(name, VALUES))))
    else:
        parent[last] = _value(draw)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Json, Json]:
    """Two schemas, the second mostly grown out of the first."""
    schema = draw(schemas())
    other = draw(mutated(schema)) if draw(st.integers(0, 5)) else draw(schemas())
    return (schema, other) if draw(st.booleans()) else (other, schema)
