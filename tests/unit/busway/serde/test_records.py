"""Fields of record classes of every kind."""

import dataclasses
import typing
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, NewType, NotRequired, Required, TypedDict

import msgspec
import pydantic
import pytest

from busway.serde.records import (
    NO_DEFAULT,
    CannotInfer,
    droppable,
    fields,
    is_model,
    is_record,
    is_typed_dict,
    members,
    strip,
    unwrap,
)

UserId = NewType("UserId", int)


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Order:
    number: int
    tags: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: "new each time")
    total: int = field(init=False, default=0)


class Row(msgspec.Struct):
    number: int
    name: str = "none"


class Options(TypedDict, total=False):
    color: Required[str]
    size: int | None
    weight: int


class Model(pydantic.BaseModel):
    number: Annotated[int, pydantic.Field(ge=0)]
    name: str = "none"
    id: str = pydantic.Field(default_factory=lambda: "new each time")


def shape(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return default and optionality by field."""
    return {each.name: (each.default, each.optional) for each in fields(kind)}


def test_the_kinds_of_records() -> None:
    """A class, not an instance of it."""
    assert all(map(is_record, (Point, Row, Options, Model)))
    assert not any(map(is_record, (int, dict, Point(1), list[Point])))
    assert (is_typed_dict(Options), is_typed_dict(dict)) == (True, False)
    assert (is_model(Model), is_model(Point)) == (True, False)


def test_only_constants_become_defaults() -> None:
    """A factory may return something else each time; its field is optional, without a default in the schema."""
    assert shape(Point) == {"x": (NO_DEFAULT, False), "y": (0, True)}
    assert shape(Row) == {"number": (NO_DEFAULT, False), "name": ("none", True)}
    assert shape(Model) == {"number": (NO_DEFAULT, False), "name": ("none", True), "id": (NO_DEFAULT, True)}
    order = shape(Order)
    assert order["tags"] == ([], True)
    assert order["id"] == (NO_DEFAULT, True)
    assert "total" not in order


def test_a_default_that_computes_is_none() -> None:
    """A record with `__post_init__`, or with fields from a factory, is no constant."""

    @dataclass
    class Stamped:
        at: int = 0

        def __post_init__(self) -> None:
            self.at += 1

    @dataclass
    class Holder:
        stamped: Stamped = field(default_factory=Stamped)

    assert shape(Holder)["stamped"] == (NO_DEFAULT, True)


def test_a_missing_key_is_null() -> None:
    """A key that is optional and never None is dropped when it is null."""
    assert shape(Options) == {"color": (NO_DEFAULT, False), "size": (None, True), "weight": (None, True)}
    assert {each.name: each.type for each in fields(Options)}["weight"] == int | None
    assert droppable(Options) == {"weight"}
    assert droppable(Point) == frozenset()


def test_not_required_keys() -> None:
    """The marker is no part of the type."""

    class Kind(TypedDict):
        a: int
        b: NotRequired[str]

    assert [(each.name, each.type) for each in fields(Kind)] == [("a", int), ("b", str | None)]


def test_an_annotation_that_cannot_be_resolved() -> None:
    """The error names the class and the remedy."""
    kind = dataclasses.make_dataclass("Broken", [("at", "Missing")])
    with pytest.raises(CannotInfer, match="Broken: name 'Missing' is not defined; its annotations must be importable"):
        fields(kind)


def test_an_init_var_is_not_kept() -> None:
    """A record with one could not be read back."""

    @dataclass
    class Seeded:
        seed: InitVar[int]

    with pytest.raises(CannotInfer, match=r"Seeded\.seed is an InitVar"):
        fields(Seeded)


def test_wrappers_are_taken_off() -> None:
    """`Annotated` in any depth keeps its metadata, in order; NewType has none."""
    assert unwrap(Annotated[Annotated[UserId, "inner"], "outer"]) == (int, ("inner", "outer"))
    assert strip(UserId) is int
    assert strip(list[int]) == list[int]


def test_the_members_of_a_union() -> None:
    """Both spellings."""
    assert members(int | None) == (int, type(None))
    assert members(typing.Union[int, str]) == (int, str)  # noqa: UP007 - the old spelling is what is tested
    assert members(int) is None
