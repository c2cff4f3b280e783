"""TypedDicts and pydantic models as values: their schema, Avro and JSON, there and back."""

import dataclasses
import datetime as dt
import enum
import subprocess
import sys
from typing import Annotated, Any, NotRequired, TypedDict

import pydantic
import pytest

from busway import AvroCodec, CannotInfer, Int32, Undecodable, Unencodable
from busway.serde.infer import infer
from busway.serde.plain import Json

OWN, OTHER = 1, 2
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Place(TypedDict):
    """Where."""

    zone: Int32
    name: NotRequired[str]
    note: NotRequired[str | None]


class Colour(enum.Enum):
    RED = "RED"


class Point(pydantic.BaseModel):
    x: int = 0


class Ride(pydantic.BaseModel):
    """A ride."""

    id: str
    stars: Annotated[int, pydantic.Field(ge=0, le=5)] = 3
    at: dt.datetime | None = None
    tags: list[str] = pydantic.Field(default_factory=list)
    stamp: str = pydantic.Field(default_factory=lambda: "now")
    colour: Colour = Colour.RED
    point: Point = Point(x=4)
    named: str = pydantic.Field(default="n", alias="Named")


class Trip(TypedDict):
    place: Place
    ride: Ride | None


@dataclasses.dataclass
class Holder:
    places: list[Place]
    single: Place | str


def test_the_schema_of_a_typed_dict() -> None:
    """A key that need not be there is null in Avro."""
    assert infer(Place) == {
        "type": "record",
        "name": "Place",
        "doc": "Where.",
        "fields": [
            {"name": "zone", "type": "int"},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }


def test_the_schema_of_a_model() -> None:
    """Its defaults are the schema's, as far as they are always the same."""
    schema: Any = infer(Ride)
    assert schema["doc"] == "A ride."
    fields = {field["name"]: field for field in schema["fields"]}
    assert "default" not in fields["id"]
    assert fields["stars"] == {"name": "stars", "type": "long", "default": 3}
    assert fields["at"]["default"] is None
    assert fields["tags"]["default"] == []
    assert "default" not in fields["stamp"]
    assert fields["colour"]["default"] == "RED"
    assert fields["point"]["default"] == {"x": 4}
    assert fields["named"]["default"] == "n"


VALUES: list[tuple[Any, Any]] = [
    (Place, {"zone": 1}),
    (Place, {"zone": 1, "name": "north", "note": "old"}),
    (Ride, Ride(id="r0")),
    (Ride, Ride(id="r1", stars=5, at=NOON, tags=["a"], point=Point(x=9), Named="other")),
    (Trip, {"place": {"zone": 3}, "ride": Ride(id="r2", at=NOON)}),
    (Trip, {"place": {"zone": 3, "name": "x"}, "ride": None}),
    (Holder, Holder([{"zone": 1}, {"zone": 2, "name": "b"}], {"zone": 3})),
    (Holder, Holder([], "text")),
    (list[Ride], [Ride(id="r3")]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_there_and_back(kind: Any, value: Any) -> None:
    """In Avro with the own schema and with another one, and in JSON."""
    codec: AvroCodec[Any] = AvroCodec(kind)
    codec.add_writer(OWN, codec.schema_text)
    codec.add_writer(OTHER, codec.schema_text.replace('"long"', '"int"') + " ")
    back = codec.decode(codec.encode(value), OWN)
    assert _without_nulls(back) == _without_nulls(value)
    json = Json(kind)
    assert json.decode(json.encode(value)) == value


def _without_nulls(value: Any) -> Any:
    """Whether a key is None or missing is one in Avro, where None is allowed."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _without_nulls(getattr(value, name)) for name in ("places", "single")}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value


def test_an_older_writer() -> None:
    """What it did not have gets the class's default, a factory's too; what it had more is dropped."""
    old: AvroCodec[Any] = AvroCodec(dataclasses.make_dataclass("Ride", [("id", str), ("more", int, 1)]))
    new: AvroCodec[Any] = AvroCodec(Ride)
    new.add_writer(OTHER, old.schema_text)
    decoded = new.decode(old.encode(old.kind("r0")), OTHER)
    assert decoded == Ride(id="r0")


def test_values_that_do_not_fit() -> None:
    """Keys that the type does not have or that are missing; what a model's own rules refuse."""
    place: AvroCodec[Any] = AvroCodec(Place)
    for wrong, why in (({"zone": 1, "other": 2}, "keys of Place are others: other"), ({}, "others: zone")):
        with pytest.raises(Unencodable, match=why):
            place.encode(wrong)
    ride: AvroCodec[Any] = AvroCodec(Ride)
    ride.add_writer(OWN, ride.schema_text)
    with pytest.raises(Unencodable, match="less than or equal to 5"):
        ride.encode(Ride.model_construct(**{**dict(Ride(id="r0")), "stars": 9}))
    with pytest.raises(Undecodable, match="less than or equal to 5"):
        Json(Ride).decode(b'{"id": "r0", "stars": 9}')
    with pytest.raises(Unencodable, match="the topic takes Place"):
        Json(Place).encode([1])
    with pytest.raises(Unencodable, match="the topic takes Ride"):
        Json(Ride).encode({"id": "r0"})


def test_two_kinds_of_dict_cannot_be_told_apart() -> None:
    """So no union holds both."""
    with pytest.raises(CannotInfer, match=r"are all dicts.*use a dataclass for each"):
        infer(dataclasses.make_dataclass("Both", [("single", Place | dict[str, int])]))


def test_pydantic_is_not_imported() -> None:
    """Who does not use it does not wait for it."""
    code = "import sys, busway; busway.App; import busway.serde.infer; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
