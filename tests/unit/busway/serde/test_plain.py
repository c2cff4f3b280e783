"""Frames, subject names, and the formats that need no registry."""

import dataclasses
import enum
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway import CannotInfer, RegistryUnreachable, Undecodable, Unencodable
from busway.serde.framing import FRAME_BYTES, NotFramed, frame, unframe
from busway.serde.naming import record_name, topic_name, topic_record_name
from busway.serde.plain import Integer, Json, Raw, Serde, Text
from busway.serde.registry import RegistryClient


@given(st.integers(0, 2**32 - 1), st.binary(max_size=20))
def test_an_id_comes_back_from_its_frame(schema_id: int, body: bytes) -> None:
    """Ids above 2^31 too, and from a view of other bytes."""
    framed = frame(schema_id) + body
    assert len(framed) == FRAME_BYTES + len(body)
    assert unframe(framed) == unframe(memoryview(framed)) == schema_id


def test_the_bytes_of_a_frame_are_those_of_the_wire_format() -> None:
    """Zero, then the id, most significant byte first."""
    assert frame(258) == b"\x00\x00\x00\x01\x02"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are too few"),
        (b"\x00\x00\x00\x01", "4 bytes"),
        (b"{\x00\x00\x00\x01", "first byte is 123"),
        (b"\xff" * 9, "first byte is 255"),
    ],
)
def test_bytes_without_a_frame_are_named(data: bytes, why: str) -> None:
    """They were not written through a registry."""
    with pytest.raises(NotFramed, match=why):
        unframe(data)


def test_subjects_are_confluents() -> None:
    """The three strategies."""
    assert topic_name("rides", "value", "shop.Ride") == "rides-value"
    assert topic_name("rides", "key", "shop.Ride") == "rides-key"
    assert record_name("rides", "value", "shop.Ride") == "shop.Ride"
    assert topic_record_name("rides", "value", "shop.Ride") == "rides-shop.Ride"


@dataclasses.dataclass
class Point:
    x: int
    label: str = ""

    def __post_init__(self) -> None:
        if self.x == 13:
            raise KeyError("thirteen")


@dataclasses.dataclass
class Deep:
    inner: "Deep | None" = None


def _changed(value: Any, **fields: Any) -> Any:
    for name, part in fields.items():
        setattr(value, name, part)
    return value


ROUND: list[tuple[Serde, Any, bytes]] = [
    (Raw(), b"\x00\xff", b"\x00\xff"),
    (Text(), "é", "é".encode()),
    (Integer(), -5, b"-5"),
    (Json(Point), Point(1, "a"), b'{"x":1,"label":"a"}'),
    (Json(float), 1, b"1"),
    (Json(list[int]), [1], b"[1]"),
    (Json(dict), {"a": None}, b'{"a":null}'),
    (Json(Any), [1, "a"], b'[1,"a"]'),
]


@pytest.mark.parametrize(("serde", "value", "data"), ROUND)
async def test_a_value_and_its_bytes(serde: Serde, value: Any, data: bytes) -> None:
    """There and back."""
    await serde.prepare("t")
    assert serde.encode(value) == data
    assert serde.decode(data) == value


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Raw(), "text"),
        (Text(), b"bytes"),
        (Text(), "\ud800"),
        (Integer(), True),
        (Integer(), "1"),
        (Json(Point), {"x": 1}),
        (Json(list), [object()]),
        (Json(float), "1"),
    ],
)
def test_a_value_of_another_type_is_unencodable(serde: Serde, value: Any) -> None:
    """Said with the type that the topic takes."""
    with pytest.raises(Unencodable):
        serde.encode(value)


class Rank(int, enum.Enum):
    FIRST = 1


class Limits(msgspec.Struct):
    share: Annotated[float, msgspec.Meta(le=1)]


class Model(pydantic.BaseModel):
    mean: float | None = None
    rest: Any = None


@dataclasses.dataclass
class Mean:
    n: int
    mean: float
    last: float | None = None
    parts: dict[str, Any] = dataclasses.field(default_factory=dict)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Json(float), NAN),
        (Json(float), -INFINITE),
        (Json(Mean), Mean(0, NAN)),
        (Json(Mean), Mean(0, 1.0, last=INFINITE)),
        (Json(Mean), Mean(0, 1.0, parts={"a": [None, {"b": NAN}]})),
        (Json(Any), {"a": (1, NAN)}),
        (Json(dict[str, Any]), {"a": Model(mean=NAN)}),
        (Json(Model), Model(mean=NAN)),
        (Json(Model), Model(rest={"a": INFINITE})),
        (Json(Mean), Mean("7", 1.0)),  # type: ignore[arg-type]
        (Json(Point), _changed(Point(1), x=13)),
        (Json(Limits), Limits(2.0)),
        (Json(Model), Model.model_construct(mean="high")),
        (Json(list[int]), [1, "2"]),
        (Integer(), 1 << 20_000),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_could_not_be_read_again_is_unencodable(serde: Serde, value: Any) -> None:
    """NaN and infinities, which JSON does not have, and whatever the type's own reader refuses."""
    with pytest.raises(Unencodable):
        serde.encode(value)


def test_numbers_are_their_digits_whatever_their_class_prints() -> None:
    """An enum of numbers."""
    assert Integer().encode(Rank.FIRST) == b"1"
    assert Json(Mean).encode(Mean(1, 2.5)) == b'{"n":1,"mean":2.5,"last":null,"parts":{}}'


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Text(), b"\xff"),
        (Integer(), b"five"),
        (Integer(), b"1" * 10_000),
        (Json(Point), b"{"),
        (Json(Point), b'{"x":"1"}'),
        (Json(Point), b'{"x":13}'),
        (Json(Deep), b'{"inner":' * 100_000),
        (Json(Point), b"\xff"),
    ],
)
async def test_bytes_that_are_something_else_are_undecodable(serde: Serde, data: bytes) -> None:
    """Whatever they make a parser, or the class itself, raise."""
    with pytest.raises(Undecodable):
        serde.decode(data)


def test_a_type_that_json_cannot_tell_apart_is_refused() -> None:
    """When the topic is prepared, with what to use instead."""
    with pytest.raises(CannotInfer, match=r"Point \| .*cannot be read from JSON: .*; use Avro, or pydantic models"):
        Json(Point | Deep)


def test_an_address_without_a_scheme_is_named() -> None:
    """Before anybody waits for a host of that name."""
    with pytest.raises(RegistryUnreachable, match="'localhost:8081' is no address of a schema registry; give http://"):
        RegistryClient("user:secret@localhost:8081")


def test_a_password_in_an_address_is_not_shown() -> None:
    """What errors print is the address without it."""
    assert RegistryClient("http://me:secret@host:8081/").url == "http://host:8081"
    assert RegistryClient("http://host:8081").url == "http://host:8081"
