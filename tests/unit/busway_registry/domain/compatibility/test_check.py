"""Who can read whom: each incompatibility with its exact path, the tricky cases, the seven levels."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.conformance.registry.schemas import schemas

from busway_registry.domain.avro.parser import AvroError, parse
from busway_registry.domain.avro.schema import Record
from busway_registry.domain.compatibility.avro import incompatibilities
from busway_registry.domain.compatibility.breaches import MOST_BREACHES, MOST_STEPS, Budget, Place, TooMuchWork
from busway_registry.domain.compatibility.check import Earlier, explain
from busway_registry.domain.compatibility.levels import Level, parse_level
from busway_registry.domain.errors import RegistryError
from busway_registry.domain.schemas import Artifact, SchemaRequest, build


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(kind: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


Found = list[tuple[str, str, str]]


def compare(reader: Any, writer: Any) -> Found:
    breaches = incompatibilities(parse(json.dumps(reader)).schema, parse(json.dumps(writer)).schema)
    assert all(breach.remedy for breach in breaches)
    return [(breach.kind, breach.path, breach.info) for breach in breaches]


def mismatch(path: str, reader: str, writer: str) -> Found:
    return [("TYPE_MISMATCH", path, f"reader type: {reader} not compatible with writer type: {writer}")]


def lacking(path: str, writer: str) -> Found:
    return [("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer}")]


A, B, C = field("int", "a"), field("int", "b"), field("int", "c")
BREACHES: dict[str, tuple[Any, Any, Found]] = {
    "record renamed": (record(), record(name="S"), [("NAME_MISMATCH", "/name", "expected: S")]),
    "enum renamed, inside": (
        record(field(enum("A"))),
        record(field(enum("A", name="n.X"))),
        [("NAME_MISMATCH", "/fields/0/type/name", "expected: n.X")],
    ),
    "fixed renamed and resized": (
        fixed(2),
        fixed(1, name="G"),
        [("NAME_MISMATCH", "/name", "expected: G"), ("FIXED_SIZE_MISMATCH", "/size", "expected: 1, found: 2")],
    ),
    "fixed resized": (array(fixed(2)), array(fixed(4)), [("FIXED_SIZE_MISMATCH", "/items/size", "expected: 4, found: 2")]),
    "symbols lost": (
        record(A, field(enum("A"))),
        record(A, field(enum("A", "C", "B"))),
        [("MISSING_ENUM_SYMBOLS", "/fields/1/type/symbols", "[B, C]")],
    ),
    "the default of a field does not stand in for symbols": (
        record(field(enum("A"), default="A")),
        record(field(enum("A", "B"))),
        [("MISSING_ENUM_SYMBOLS", "/fields/0/type/symbols", "[B]")],
    ),
    "new field without a default": (record(A, B), record(A), [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", "b")]),
    "nullable is no default": (
        record(field(["null", "int"], "b")),
        record(A),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "b")],
    ),
    "several at once, in the order of fields": (
        record(A, field("int", "f"), C),
        record(field("string", "f")),
        [
            ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "a"),
            *mismatch("/fields/1/type", "INT", "STRING"),
            ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/2", "c"),
        ],
    ),
    "type changed at the root": ("int", "string", mismatch("/", "INT", "STRING")),
    "type changed in a map in an array": (array(map_of("int")), array(map_of("long")), mismatch("/items/values", "INT", "LONG")),
    "record to map": (map_of("int"), record(A), mismatch("/", "MAP", "RECORD")),
    "out of a union": ("int", ["null", "int", "string"], mismatch("/", "INT", "NULL") + mismatch("/", "INT", "STRING")),
    "branch removed": (["null"], ["null", "int"], lacking("/1", "INT")),
    "branch removed, inside": (
        record(field(["null", "int"])),
        record(field(["int", "string", "null"])),
        lacking("/fields/0/type/1", "STRING"),
    ),
    "into a union without it": (record(field(["null", "int"])), record(field("string")), lacking("/fields/0/type", "STRING")),
    "a record in a union hides its cause": (
        ["null", record(A, B)],
        ["null", record(A)],
        lacking("/1", "RECORD"),
    ),
    "recursive, one field demoted": (
        record(field(["null", "R"], "next"), field("int", "v")),
        record(field(["null", "R"], "next"), field("long", "v")),
        lacking("/fields/0/type/1", "RECORD")[:0] + mismatch("/fields/1/type", "INT", "LONG"),
    ),
    "alias and name both written": (
        record(field("int", "f", aliases=["g"])),
        record(field("int", "f"), field("int", "g")),
        [("NAME_MISMATCH", "/fields/0", "f matches multiple fields of the writer: f, g")],
    ),
    "new enum field with the default of the enum alone": (
        record(A, field(enum("A", default="A"))),
        record(A),
        mismatch("/fields/1/type", "ENUM", "RECORD"),
    ),
    "from nullable to plain": ("int", ["null", "int"], mismatch("/", "INT", "NULL")),
}  # fmt: skip

COMPATIBLE: dict[str, tuple[Any, Any]] = {
    "namespace changed": (record(namespace="a"), record(namespace="b")),
    "namespace changed in a union": (["null", record(A, namespace="a")], ["null", record(A, namespace="b")]),
    "renamed with a full alias": (record(name="S", namespace="a", aliases=["a.R"]), record(namespace="a")),
    "renamed with a short alias": (record(name="S", namespace="a", aliases=["R"]), record(namespace="a")),
    "field renamed with an alias": (record(field("int", "g", aliases=["f"])), record(field("int", "f"))),
    "field removed": (record(A), record(A, B)),
    "fields in another order": (record(A, B), record(B, A)),
    "new field with a default": (record(A, field("int", "b", default=0)), record(A)),
    "new field with null": (record(A, field(["null", "int"], "b", default=None)), record(A)),
    "plain to nullable": (["null", "int"], "int"),
    "branches in another order": (["int", "null"], ["null", "int"]),
    "branch added": (["null", "int", "string"], ["null", "int"]),
    "promotion inside a union": (["null", "double"], ["int", "null", "long", "float"]),
    "symbol added": (enum("A", "B"), enum("A")),
    "symbol removed, with a default": (enum("A", default="A"), enum("A", "B")),
    "decimal scale changed": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 4},
    ),
    "unit of a timestamp changed": (
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ),
    "long to date": ("long", {"type": "int", "logicalType": "date"}),
    "recursion": (record(field(["null", "R"], "next"), field("long", "v")), record(field(["null", "R"], "next"), field("int", "v"))),
    "writer's empty union": ("int", []),
    "error and record": (record(type="error"), record(type="error")),
}  # fmt: skip

PROMOTIONS = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string")}  # fmt: skip
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@pytest.mark.parametrize(("reader", "writer", "breaches"), BREACHES.values(), ids=BREACHES)
def test_breaches(reader: Any, writer: Any, breaches: Found) -> None:
    """Kind, path and short fact of each."""
    assert compare(reader, writer) == breaches


@pytest.mark.parametrize(("reader", "writer"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_compatible(reader: Any, writer: Any) -> None:
    """What looks like a breach and is none, to Java and so to us."""
    assert compare(reader, writer) == []


def test_promotions() -> None:
    """Every pair of primitive types: the promotions of the specification and no others."""
    for writer in PRIMITIVES:
        for reader in PRIMITIVES:
            good = writer == reader or (writer, reader) in PROMOTIONS
            expected: Found = [] if good else mismatch("/", reader.upper(), writer.upper())
            assert compare(reader, writer) == expected


def test_the_cause_inside_a_union_is_told() -> None:
    """Java says no more than that the union lacks a record; the remedy names the place inside it and what to do there."""
    (breach,) = incompatibilities(
        parse(json.dumps(record(field(["null", record(A, B, name="S")], "s")))).schema,
        parse(json.dumps(record(field(["null", record(A, name="S")], "s")))).schema,
    )
    assert (breach.path, breach.where) == ("/fields/0/type/1", "/fields/0/type")
    assert breach.remedy.startswith("at /fields/0/type/1/fields/1 give field b of S a default")


def test_the_whole_way_is_told() -> None:
    """Where Java starts again at the root, the whole way is there too."""
    (breach,) = incompatibilities(
        parse(json.dumps(record(A, field("string", "t")))).schema,
        parse(json.dumps(record(A, field(["null", "string"], "t")))).schema,
    )
    assert (breach.path, breach.where) == ("/", "/fields/1/type")


def test_comparisons_have_a_bound() -> None:
    """A request has one budget for all its versions and both directions; what is spent on it counts, found or not."""
    ours, theirs = ([fixed(1, name=f"{letter}{number}") for number in range(20)] for letter in "AB")
    compared = 20 * (20 + 1) + 1
    once = compared + 20 * 20  # a breach for each branch, and to tell one is as much as twenty pairs
    for level, history, steps in (
        (Level.BACKWARD, [theirs], once),
        (Level.BACKWARD, [theirs, theirs], once),
        (Level.FULL, [theirs], 2 * once),
        (Level.BACKWARD_TRANSITIVE, [ours, ours], 2 * (20 * 21 // 2 + 20 + 1)),
    ):
        budget = Budget(steps)
        judge(ours, history, level, budget)
        assert budget.left == 0
        with pytest.raises(TooMuchWork, match=f"there are more than {steps - 1} pairs of types to compare"):
            judge(ours, history, level, Budget(steps - 1))


def test_looking_for_names_costs_too() -> None:
    """Aliases and symbols are as many as their author likes, once for each pair."""
    many = [f"A{number}" for number in range(1600)]
    for schema in (enum(*many), fixed(1, aliases=many), record(field("int", aliases=many))):
        budget = Budget()
        judge(schema, [schema], Level.BACKWARD, budget)
        assert MOST_STEPS - budget.left >= 100


def laughs(levels: int, last: str) -> Any:
    """A record that holds the one before twice: two to the power of the levels ways lead to the last."""
    made = record(field(last, "v"), name="N0")
    for number in range(1, levels):
        made = record(field(made, "l"), field(f"N{number - 1}", "r"), name=f"N{number}")
    return made


def test_more_breaches_than_there_is_memory() -> None:
    """Types that refer twice to the one before: the first breaches are reported, in Java's order, and that there are more."""
    breaches = compare(laughs(60, "int"), laughs(60, "string"))
    assert len(breaches) == MOST_BREACHES
    assert breaches[0] == mismatch("/fields/0/type" * 60, "INT", "STRING")[0]
    assert {breach[0] for breach in breaches} == {"TYPE_MISMATCH"}
    texts = judge(laughs(60, "int"), [laughs(60, "string")], Level.FULL)
    assert [text for text in texts if "TYPE_MISMATCH" not in text] == [
        "{more:'these are the first 200; mend them and check again'}",
        "{oldSchemaVersion:1}",
        texts[-2],
        "{compatibility:'FULL'}",
    ]
    assert len(texts) == MOST_BREACHES + 4
    few = compare(laughs(4, "int"), laughs(4, "string"))
    assert len(few) == 8


def test_a_union_of_types_that_refer_twice() -> None:
    """Each branch is looked at by every other one, and hides what is in it: one breach a branch, with the cause inside."""

    def union(last: str) -> Any:
        twice = [record(field(f"N{n - 1}", "l"), field(f"N{n - 1}", "r"), name=f"N{n}") for n in range(1, 40)]
        return [record(field(last, "v"), name="N0"), *twice]

    assert compare(union("int"), union("int")) == []
    assert compare(union("int"), union("string")) == [lacking(f"/{n}", "RECORD")[0] for n in range(40)]


def test_a_long_way_is_told_by_its_end() -> None:
    """Places cost nothing until they are reported, and then no more than their last part."""
    place = Place().down("fields", 0)
    for _ in range(5000):
        place = place.down("type")
    assert place.where() == place.path() == "/…" + "/type" * 1000
    assert place.branch(1).down("name").path() == "/name"


@pytest.mark.slow
def test_long_chains_of_types() -> None:
    """Two thousand types, each referring to the one before: no stack runs out, and the breach at the end is found."""

    def chain(last: str) -> str:
        types: list[Any] = [record(field(last), name="T0")]
        types += [record(field(f"T{number - 1}"), name=f"T{number}") for number in range(1, 2000)]
        fields = [field(kind, f"f{number}") for number, kind in enumerate(types)]
        return json.dumps(record(*reversed([field("T1999", "top"), *reversed(fields)]), name="All"))

    assert compare(json.loads(chain("long")), json.loads(chain("int"))) == []
    breaches = compare(json.loads(chain("int")), json.loads(chain("long")))
    assert breaches[0] == mismatch("/fields/0/type/fields/0/type", "INT", "LONG")[0]


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(schemas())
@pytest.mark.slow
def test_a_schema_reads_itself(schema: Any) -> None:
    """Any schema is compatible with itself, unless an alias makes two of its own fields the same."""
    text = json.dumps(schema)
    try:
        parsed = parse(text).schema
    except AvroError:
        assume(False)
    breaches = incompatibilities(parsed, parse(text).schema)
    assert all("matches multiple fields" in breach.info for breach in breaches)
    if isinstance(parsed, Record) and not any("aliases" in str(schema_field) for schema_field in schema["fields"]):
        assert breaches == []


OLD, MIDDLE, NEW = record(A), record(A, field("int", "b", default=0)), record(A, B)
HISTORY = [OLD, MIDDLE]
GAINS, LOSES, SAME = record(A, B), record(), record(A)
LEVELS = {  # against one earlier version with field a alone: a field without a default gained, a field lost, nothing changed
    Level.NONE: (True, True, True),
    Level.BACKWARD: (False, True, True),
    Level.BACKWARD_TRANSITIVE: (False, True, True),
    Level.FORWARD: (True, False, True),
    Level.FORWARD_TRANSITIVE: (True, False, True),
    Level.FULL: (False, False, True),
    Level.FULL_TRANSITIVE: (False, False, True),
}


def artifact(schema: Any) -> Artifact:
    return build(SchemaRequest(text=json.dumps(schema)), [], normalize=False)


def judge(schema: Any, history: list[Any], level: Level, budget: Budget | None = None) -> list[str]:
    known = [Earlier(version=number, artifact=artifact(schema)) for number, schema in enumerate(history, 1)]
    return explain(artifact(schema), [], known[::-1], level, budget=budget)


@pytest.mark.parametrize(("level", "verdicts"), LEVELS.items())
def test_levels(level: Level, verdicts: tuple[bool, bool, bool]) -> None:
    """Who has to read whom at each level."""
    assert tuple(not judge(reader, [OLD], level) for reader in (GAINS, LOSES, SAME)) == verdicts


def test_plain_levels_look_at_the_latest_alone() -> None:
    """A field that lost its default step by step: fine for each neighbour, a breach with the first version."""
    assert judge(NEW, HISTORY, Level.BACKWARD) == []
    texts = judge(NEW, HISTORY, Level.BACKWARD_TRANSITIVE)
    assert "oldSchemaVersion:1" in texts[1]


def test_the_search_ends_at_the_newest_breach() -> None:
    """Transitive levels go from the newest to the oldest and stop at the first bad one."""
    texts = judge("int", ["string", "boolean", "int"], Level.BACKWARD_TRANSITIVE)
    assert texts[1] == "{oldSchemaVersion:2}"
    assert texts[2] == "{oldSchema:'\"boolean\"'}"
    assert texts[3] == "{compatibility:'BACKWARD_TRANSITIVE'}"
    assert len(texts) == 4


def test_messages_hold_kind_path_and_remedy() -> None:
    """The first message is the breach: what a reader of the answer needs to mend the schema."""
    (first, *_) = judge(GAINS, [OLD], Level.BACKWARD)
    assert first.startswith("{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'at /fields/1 the new schema")
    assert "give field b of R a default" in first
    assert first.endswith("additionalInfo:'b'}")


def test_names_of_levels() -> None:
    """In any case; others are refused with Confluent's words."""
    assert parse_level("full_Transitive") is Level.FULL_TRANSITIVE
    for text in ("", "SIDEWAYS", None, 7):
        with pytest.raises(
            RegistryError, match="Valid values are none, backward, forward, full, backward_transitive"
        ) as refusal:
            parse_level(text)
        assert refusal.value.code == 42203
