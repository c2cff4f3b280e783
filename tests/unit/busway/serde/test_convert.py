"""Conversions between values of Python's types and fastavro's."""

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

from busway.serde.convert import CLASS_OF, USE_DEFAULT, inward, outward
from busway.serde.infer import Float32, Int32, Precision

UTC = dt.UTC


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    color: Color = Color.RED


@dataclass
class Tree:
    name: str
    children: list["Tree"] = field(default_factory=list)


class Options(TypedDict, total=False):
    size: int


NAMES: dict[type, str] = {Point: "p.Point", Tree: "p.Tree", Color: "p.Color", Options: "p.Options"}


def out(kind: Any, value: Any) -> Any:
    """Convert a value for fastavro."""
    convert = outward(kind, NAMES)
    return value if convert is None else convert(value)


def back(kind: Any, value: Any, *, own: bool = True) -> Any:
    """Convert what fastavro read."""
    convert = inward(kind, NAMES, own=own)
    return value if convert is None else convert(value)


@pytest.mark.parametrize("kind", [int, str, bytes, list[int], dict[str, int], dt.date, uuid.UUID, int | None])
def test_what_fastavro_reads_unchanged_costs_nothing(kind: Any) -> None:
    """There is no function to call."""
    assert inward(kind, NAMES, own=True) is None


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (Point, Point(1), {"x": 1, "color": "red"}),
        (Tree, Tree("a", [Tree("b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
        (Options, {"size": 1}, {"size": ("long", 1)}),
        (dict[str, Point], {"k": Point(2, Color.BLUE)}, {"k": {"x": 2, "color": "blue"}}),
        (tuple[int, ...], (1, 2), [1, 2]),
        (float | int, 1, ("long", 1)),
        (float | int, 1.0, ("double", 1.0)),
        (float | str, 1, ("double", 1)),
        (Point | Color | None, Color.BLUE, ("p.Color", "blue")),
        (Point | Color | None, Point(3), ("p.Point", {"x": 3, "color": "red"})),
    ],
)
def test_outward(kind: Any, value: Any, written: Any) -> None:
    """A union's value has the name of its branch, so nothing is guessed."""
    assert out(kind, value) == written


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Int32, 2**31, "2147483648 does not fit 32 bits"),
        (Float32, 1e39, "1e[+]39 does not fit a float of 32 bits"),
        (dt.datetime, dt.datetime(2020, 1, 1), "has no time zone"),
        (int | str, b"x", "is bytes, none of int, str"),
        (float | str, True, "True is bool, none of float, str"),
        (Options, {"sise": 1}, "the keys of Options are others: sise"),
    ],
)
def test_values_that_do_not_fit(kind: Any, value: Any, problem: str) -> None:
    """The value is named."""
    with pytest.raises(ValueError, match=problem):
        out(kind, value)


def test_records_of_the_own_schema() -> None:
    """Nothing is missing; branches are named."""
    assert back(Point, {"x": 1, "color": "blue"}) == Point(1, Color.BLUE)
    assert back(Tree, {"name": "a", "children": [{"name": "b", "children": []}]}) == Tree("a", [Tree("b")])
    assert back(tuple[int, ...], [1, 2]) == (1, 2)
    assert back(Point | Color | None, ("p.Color", "red")) is Color.RED
    assert back(Point | None, None) is None


def test_records_of_another_schema() -> None:
    """A missing field takes the class's default; a record has its class beside its fields."""
    assert back(Point, {"x": 1, "color": USE_DEFAULT, CLASS_OF: Point}, own=False) == Point(1)
    assert back(Point | str, {"x": 1, "color": "blue", CLASS_OF: Point}, own=False) == Point(1, Color.BLUE)
    assert back(Options, {"size": None, CLASS_OF: Options}, own=False) == {}


def test_plain_values_of_a_writer_without_logical_types() -> None:
    """One of them is taken; two cannot be distinguished."""
    moment = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert back(dt.datetime, 1_000_000, own=False) == moment
    assert back(dt.datetime, moment, own=False) == moment
    assert back(dt.date, 1, own=False) == dt.date(1970, 1, 2)
    assert back(uuid.UUID, str(uuid.UUID(int=5)), own=False) == uuid.UUID(int=5)
    assert back(Annotated[decimal.Decimal, Precision(5, 2)], b"\x04\xd2", own=False) == decimal.Decimal("12.34")
    assert back(dt.date | str, 1, own=False) == dt.date(1970, 1, 2)
    with pytest.raises(ValueError, match="written without a logical type, so it may be datetime or date"):
        back(dt.datetime | dt.date, 1, own=False)


def test_an_enum_in_a_union_is_read_by_its_values() -> None:
    """A text beside it keeps what is none of them."""
    assert back(Color | str, "red", own=False) is Color.RED
    assert back(Color | str, "green", own=False) == "green"
    with pytest.raises(ValueError, match="'green' is none of the values of Color"):
        back(Color | int, "green", own=False)
