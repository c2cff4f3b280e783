"""A Python type → its Avro schema, row by row; each is what our registry's parser and fastavro accept."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import time
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NewType

import fastavro
import msgspec
import pydantic
import pytest

from busway import Alias, AvroType, CannotInfer, Float32, Int32, Precision
from busway.serde.infer import infer
from busway_registry.domain.avro.parser import parse


class Color(enum.Enum):
    """Of paint."""

    RED = "red"
    BLUE = "blue"


class Mood(enum.StrEnum):
    UNKNOWN = "unknown"
    GOOD = "good"
    __avro_default__ = "unknown"


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Somewhere."""

    __avro_namespace__ = "geo"
    __avro_aliases__ = ("Spot",)
    name: Annotated[str, Alias("title"), Alias("label")]
    at: Point | None = None


@dataclasses.dataclass
class Node:
    value: int
    next: "Node | None" = None
    children: list["Node"] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct, frozen=True):
    a: int
    b: list[str] = msgspec.field(default_factory=list)
    c: str | None = None


UserId = NewType("UserId", int)
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "double", "default": 0.0}],
}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TABLE: list[tuple[Any, Any]] = [
    (bool, "boolean"),
    (str, "string"),
    (bytes, "bytes"),
    (int, "long"),
    (float, "double"),
    (Int32, "int"),
    (Float32, "float"),
    (UserId, "long"),
    (list[int], {"type": "array", "items": "long"}),
    (tuple[str, ...], {"type": "array", "items": "string"}),
    (dict[str, float], {"type": "map", "values": "double"}),
    (list[dict[str, list[int]]], {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "long"}}}),
    (int | None, ["null", "long"]),
    (None | str, ["null", "string"]),
    (typing.Optional[Int32], ["null", "int"]),  # noqa: UP045 - the older way to write it
    (int | float | str, ["long", "double", "string"]),
    (list[int | None] | None, ["null", {"type": "array", "items": ["null", "long"]}]),
    (Literal["a", "b"], "string"),
    (Color, {"type": "enum", "name": "Color", "doc": "Of paint.", "symbols": ["red", "blue"]}),
    (Mood, {"type": "enum", "name": "Mood", "symbols": ["unknown", "good"], "default": "unknown"}),
    (dt.datetime, MICROS),
    (dt.date, {"type": "int", "logicalType": "date"}),
    (dt.time, {"type": "long", "logicalType": "time-micros"}),
    (dt.date | dt.datetime, [{"type": "int", "logicalType": "date"}, MICROS]),
    (uuid.UUID, {"type": "string", "logicalType": "uuid"}),
    (Annotated[decimal.Decimal, Precision(12, 2)], {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    (Annotated[dt.datetime, AvroType({"type": "long", "logicalType": "timestamp-millis"})] | None, ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
    (Point, POINT),
    (
        Place,
        {
            "type": "record",
            "name": "Place",
            "namespace": "geo",
            "doc": "Somewhere.",
            "aliases": ["Spot"],
            "fields": [
                {"name": "name", "type": "string", "aliases": ["title", "label"]},
                {"name": "at", "type": ["null", POINT], "default": None},
            ],
        },
    ),
    (
        Node,
        {
            "type": "record",
            "name": "Node",
            "fields": [
                {"name": "value", "type": "long"},
                {"name": "next", "type": ["null", "Node"], "default": None},
                {"name": "children", "type": {"type": "array", "items": "Node"}, "default": []},
            ],
        },
    ),
    (
        Struct,
        {
            "type": "record",
            "name": "Struct",
            "fields": [
                {"name": "a", "type": "long"},
                {"name": "b", "type": {"type": "array", "items": "string"}, "default": []},
                {"name": "c", "type": ["null", "string"], "default": None},
            ],
        },
    ),
    (Point | Color | None, ["null", POINT, {"type": "enum", "name": "Color", "doc": "Of paint.", "symbols": ["red", "blue"]}]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "schema"), TABLE, ids=[str(kind) for kind, _ in TABLE])
def test_every_row_is_a_schema(kind: Any, schema: Any) -> None:
    """The schema is as written here, and two parsers that are not this one take it."""
    assert infer(kind) == schema
    parse(json.dumps(schema))
    fastavro.parse_schema(json.loads(json.dumps(schema)))


def field_of(kind: Any, default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """The schema of a record's one field."""
    default_field: Any = dataclasses.field(default=default, default_factory=factory)
    made = dataclasses.make_dataclass("Made", [("f", kind, default_field)])
    schema: Any = infer(made)
    parse(json.dumps(schema))
    fastavro.parse_schema(json.loads(json.dumps(schema)))
    return {name: attribute for name, attribute in schema["fields"][0].items() if name != "name"}


@dataclasses.dataclass
class Still:
    x: float = 1.0
    names: list[str] = dataclasses.field(default_factory=list)


STILL = {
    "type": "record",
    "name": "Still",
    "fields": [
        {"name": "x", "type": "double", "default": 1.0},
        {"name": "names", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


@dataclasses.dataclass
class Stamped:
    seconds: int = dataclasses.field(default_factory=lambda: int(time.time()))


class Stamp(msgspec.Struct, frozen=True):
    day: int = msgspec.field(default_factory=lambda: int(time.time()) // 86_400)


class Model(pydantic.BaseModel):
    seconds: int = pydantic.Field(default_factory=lambda: int(time.time()))


@dataclasses.dataclass
class Around:
    inner: Stamped = dataclasses.field(default_factory=Stamped)


@dataclasses.dataclass
class Late:
    at: int = 0

    def __post_init__(self) -> None:
        self.at = int(time.time())


@pytest.mark.parametrize("kind", [Stamped, Stamp, Model, Around, Late])
def test_what_is_made_at_the_time_is_in_no_default_however_deep(kind: Any) -> None:
    """Nor is the day, which is the same all day: the schema is the same at every start."""
    assert "default" not in field_of(kind, factory=kind)
    assert "default" not in field_of(list[kind], factory=lambda: [kind()])  # type: ignore[valid-type]
    if kind is Stamp:
        assert "default" not in field_of(kind, default=Stamp())


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (int, 3, {"type": "long", "default": 3}),
    (bool, False, {"type": "boolean", "default": False}),
    (float, 0, {"type": "double", "default": 0}),
    (bytes, b"\x00\xff", {"type": "bytes", "default": "\x00\xff"}),
    (int | None, None, {"type": ["null", "long"], "default": None}),
    (int | None, 3, {"type": ["long", "null"], "default": 3}),
    (int | str, "x", {"type": ["string", "long"], "default": "x"}),
    (int | float, 1.5, {"type": ["double", "long"], "default": 1.5}),
    (int | bool, True, {"type": ["boolean", "long"], "default": True}),
    (Int32 | str, 4, {"type": ["int", "string"], "default": 4}),
    (Literal["a"] | None, "a", {"type": ["string", "null"], "default": "a"}),
    (
        Color | str,
        Color.BLUE,
        {
            "type": [{"type": "enum", "name": "Color", "doc": "Of paint.", "symbols": ["red", "blue"]}, "string"],
            "default": "blue",
        },
    ),
    (str | Still, Still, {"type": [STILL, "string"], "default": {"x": 1.0, "names": []}}),
]


@pytest.mark.parametrize(
    ("kind", "default", "schema"), DEFAULTS, ids=[f"{kind}={default}" for kind, default, _ in DEFAULTS]
)
def test_a_default_belongs_to_the_first_branch(kind: Any, default: Any, schema: Any) -> None:
    """Whatever the order of the union in Python, the parsers take the default."""
    given = {"factory": default} if isinstance(default, type) else {"default": default}
    assert field_of(kind, **given) == schema


@pytest.mark.parametrize(
    "factory", [uuid.uuid4, time.time, lambda: str(uuid.uuid4()), lambda: [time.perf_counter_ns()]]
)
def test_what_a_factory_makes_anew_is_no_default(factory: Callable[[], Any]) -> None:
    """Ids and times would make another schema of every start."""
    kind = {uuid.UUID: uuid.UUID, float: float, str: str, list: list[int]}[type(factory())]
    assert "default" not in field_of(kind, factory=factory)


def test_a_class_without_a_namespace_is_in_that_of_the_record_around_it() -> None:
    """As Avro reads it, and the second mention names it in full."""

    @dataclasses.dataclass
    class Pair:
        __avro_namespace__ = "geo"
        first: Point
        second: Point

    schema: Any = infer(Pair)
    assert schema["fields"][0]["type"] == POINT
    assert schema["fields"][1]["type"] == "geo.Point"
    parse(json.dumps(schema))


@dataclasses.dataclass
class Outer:
    plain: Point
    inside: "Inside"


@dataclasses.dataclass
class Inside:
    __avro_namespace__ = "geo"
    again: Point


@dataclasses.dataclass
class Kept:
    seed: dataclasses.InitVar[int]
    value: int = 0


Twin = dataclasses.make_dataclass("Point", [("z", int)])
REFUSED: list[tuple[Any, str]] = [
    (object, "object has no Avro schema"),
    (set[int], "has no Avro schema"),
    (Any, "has no Avro schema"),
    (list, "list has no Avro schema"),
    (tuple[int, str], "has no Avro schema"),
    (dict[int, str], "keys of an Avro map are strings"),
    (Literal[1, 2], "has no Avro schema"),
    (decimal.Decimal, "needs its precision"),
    (enum.Enum("Bad", {"A": "a-b"}), "symbols are letters"),
    (enum.Enum("Numbers", {"A": 1}), "symbols are letters"),
    (list[int] | list[str], "both array in Avro"),
    (int | dt.datetime, "both long in Avro"),
    (str | uuid.UUID, "both string in Avro"),
    (dict[str, int] | dict[str, str], "both map in Avro"),
    (dataclasses.make_dataclass("Two", [("a", Point), ("b", Twin)]), "two classes are called Point"),
    (dataclasses.make_dataclass("Straße", [("a", int)]), "is no name in Avro"),
    (dataclasses.make_dataclass("Way", [("straße", int)]), "is no name in Avro"),
    (dataclasses.make_dataclass("Inf", [("a", float, math.inf)]), "default inf cannot be written"),
    (dataclasses.make_dataclass("When", [("a", dt.date, dt.date(2026, 1, 1))]), "cannot be written"),
    (dataclasses.make_dataclass("Off", [("a", int, None)]), r"its type is int \| None"),
    (Outer, "inside and outside namespace geo"),
    (Kept, "InitVar"),
    (dataclasses.make_dataclass("Lost", [("a", "Nowhere")]), "'Nowhere' is not defined"),
]


@pytest.mark.parametrize(("kind", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_has_no_schema_is_refused_by_name(kind: Any, why: str) -> None:
    """The text says what and where, before anything is sent."""
    with pytest.raises(CannotInfer, match=why):
        infer(kind)
