"""Values → Avro bodies and back: whatever a class can hold, across versions of it, and bodies that are damaged."""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import io
import json
import re
import uuid
from typing import Annotated, Any, Literal

import fastavro
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway import Alias, AvroCodec, AvroType, Float32, Int32, Precision, Undecodable, Unencodable

OWN = 7
OTHER = 8
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    SMALL = "small"
    RED = "red"


@dataclasses.dataclass
class Card:
    number: str
    paid: Annotated[decimal.Decimal, Precision(9, 2)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cash:
    __avro_namespace__ = "money"
    coins: int
    change: "Cash | None" = None


class Cheque(msgspec.Struct, frozen=True):
    bank: str
    lines: list[str] = msgspec.field(default_factory=list)


@dataclasses.dataclass
class Base:
    id: uuid.UUID
    at: dt.datetime


@dataclasses.dataclass
class Everything(Base):
    c_int: int
    v: Int32
    value: str
    data: bytes
    kind: Literal["a", "b"]
    day: dt.date | dt.datetime
    number: int | float | bool | None
    text: Color | Size | str
    pay: Card | Cash | Cheque | None
    many: list[Card | int] | None
    named: dict[str, Cash] | None
    either: dict[str, int] | list[Cheque] | Cheque
    nested: list[dict[str, list[Color | None]]]
    pair: tuple[Color, ...] | None
    single: Float32
    stamp: Annotated[dt.datetime, AvroType({"type": "long", "logicalType": "timestamp-millis"})] | None
    color: Color = Color.RED


longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=8)
moments = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))
cards = st.builds(Card, number=texts, paid=st.decimals(-9999, 9999, places=2))
cash = st.recursive(
    st.builds(Cash, coins=longs, change=st.none()),
    lambda inner: st.builds(Cash, coins=longs, change=inner),
    max_leaves=4,
)
cheques = st.builds(Cheque, bank=texts, lines=st.lists(texts, max_size=3))
colors = st.sampled_from(Color)
everything = st.builds(
    Everything,
    id=st.uuids(),
    at=moments,
    c_int=longs,
    v=st.integers(-(2**31), 2**31 - 1),
    value=texts,
    data=st.binary(max_size=8),
    kind=st.sampled_from(["a", "b"]),
    day=st.dates(dt.date(1970, 1, 1)) | moments,
    number=longs | st.floats(allow_nan=False) | st.booleans() | st.none(),
    text=colors | st.sampled_from(Size) | texts,
    pay=cards | cash | cheques | st.none(),
    many=st.none() | st.lists(cards | longs, max_size=3),
    named=st.none() | st.dictionaries(texts, cash, max_size=2),
    either=st.dictionaries(texts, longs, max_size=2) | st.lists(cheques, max_size=2) | cheques,
    nested=st.lists(st.dictionaries(texts, st.lists(colors | st.none(), max_size=2), max_size=2), max_size=2),
    pair=st.none() | st.lists(colors, max_size=2).map(tuple),
    single=st.floats(width=32, allow_nan=False),
    stamp=st.none() | moments.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    color=colors,
)
CODEC = AvroCodec(Everything)
CODEC.add_writer(OWN, CODEC.schema_text)
# The same with a document added: another schema for the codec, the same bodies.
CODEC.add_writer(OTHER, json.dumps({**json.loads(CODEC.schema_text), "doc": "another"}))


@settings(max_examples=100)
@given(everything)
def test_what_a_class_holds_comes_back_as_it_was(value: Everything) -> None:
    """Every field, with its class: unions of records, enums, lists and maps included, by any writer."""
    body = CODEC.encode(value)
    decoded = CODEC.decode(body, OWN)
    assert decoded == value
    for name in ("text", "number", "day", "pay"):
        assert type(getattr(decoded, name)) is type(getattr(value, name))
    other = CODEC.decode(body, OTHER)
    if value.text in {"red", "small"} or value.text is Size.RED:
        # Another schema does not say which branch a symbol came from; the first enum that has it gets it.
        other.text = value.text
    assert other == value
    assert type(other.pay) is type(value.pay)
    plain: Any = fastavro.schemaless_reader(
        io.BytesIO(body), fastavro.parse_schema(json.loads(CODEC.schema_text)), None
    )
    assert plain["c_int"] == value.c_int


@settings(max_examples=100)
@given(everything, st.data())
def test_a_damaged_body_is_undecodable_and_nothing_else(value: Everything, data: st.DataObject) -> None:
    """Cut, changed and random bytes: a value or `Undecodable`, no other error."""
    body = bytearray(CODEC.encode(value))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    for damaged in (bytes(body), bytes(body[:place]), data.draw(st.binary(max_size=64))):
        for writer in (OWN, OTHER):
            with contextlib.suppress(Undecodable):
                CODEC.decode(damaged, writer)


def test_a_body_that_nests_without_end_is_undecodable() -> None:
    """A million levels of a record inside itself: an error, not the end of the process."""
    codec = AvroCodec(Cash)
    codec.add_writer(OWN, codec.schema_text)
    codec.add_writer(OTHER, json.dumps({**json.loads(codec.schema_text), "doc": "another"}))
    for writer in (OWN, OTHER):
        with pytest.raises(Undecodable, match="recursion"):
            codec.decode(b"\x02\x02" * 1_000_000, writer)
    chain: Cash | None = None
    for number in range(100):
        chain = Cash(coins=2**60 + number, change=chain)
    assert chain is not None
    assert codec.decode(codec.encode(chain), OWN) == chain


def test_a_value_that_nests_without_end_is_unencodable() -> None:
    """A record that holds itself cannot be written."""

    node = Node(1)
    node.next = node
    with pytest.raises(Unencodable):
        AvroCodec(Node).encode(node)


@dataclasses.dataclass(repr=False)
class Node:
    value: int
    next: "Node | None" = None


@dataclasses.dataclass
class One:
    f: Any


def holding(kind: Any) -> type:
    """A record class with one field."""
    return dataclasses.make_dataclass("Holder", [("f", kind)])


UNFIT: list[tuple[Any, Any, str]] = [
    (int, "1", "Holder"),
    (int, 2**63, "Holder"),
    (Int32, 2**31, "32 bits"),
    (Int32 | None, -(2**31) - 1, "32 bits"),
    (str, 1, "Holder"),
    (str, None, "Holder"),
    (str | None, 1, "int, none of str, NoneType"),
    (Card | Cheque, Cash(coins=1), "none of Card, Cheque"),
    (Color, "red", "Holder"),
    (Color | None, "red", "str, none of Color"),
    (dt.datetime, dt.datetime(2026, 1, 1), "no time zone"),
    (dt.datetime | None, dt.datetime(2026, 1, 1), "no time zone"),
    (Annotated[decimal.Decimal, Precision(4, 2)], decimal.Decimal("1.234"), "Holder"),
    (Annotated[decimal.Decimal, Precision(4, 2)], decimal.Decimal("12345.67"), "Holder"),
    (list[int], ["x"], "Holder"),
    (dict[str, int], {1: 1}, "Holder"),
    (Card, Cheque("b"), "Holder"),
    (Float32, 1e300, "Holder"),
]


@pytest.mark.parametrize(("kind", "value", "why"), UNFIT, ids=[f"{kind}-{value!r}" for kind, value, _ in UNFIT])
def test_a_value_of_another_type_is_unencodable(kind: Any, value: Any, why: str) -> None:
    """The error names the record and what does not fit; nothing is written in its place."""
    made: Any = holding(kind)
    with pytest.raises(Unencodable, match=why):
        AvroCodec(made).encode(made(value))


@dataclasses.dataclass
class Even:
    f: int

    def __post_init__(self) -> None:
        if self.f % 2:
            raise ValueError(f"{self.f} is odd")


class Small(pydantic.BaseModel):
    f: Annotated[int, pydantic.Field(le=10)]


def changed(value: Any, f: Any) -> Any:
    """The value with another field, which its class has not seen."""
    value.f = f
    return value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (holding(uuid.UUID), "no id"),
        (holding(uuid.UUID | None), "no id"),
        (holding(dt.date), 10**8),
        (holding(dt.datetime), 2**62),
        (holding(list[dt.datetime]), [dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))]),
        (holding(dt.datetime), dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(dt.timedelta(hours=-2)))),
        (holding(Annotated[decimal.Decimal, Precision(4, 2)]), decimal.Decimal("NaN")),
        (Even, 3),
        (Small, 11),
        (holding(list[Even]), [changed(Even(2), 3)]),
    ],
)
def test_what_could_not_be_read_again_is_unencodable(kind: Any, value: Any) -> None:
    """Logical types, and classes with rules of their own: what the reader of the type refuses is never sent."""
    made = kind(2) if kind in {Even} else kind.model_construct() if kind is Small else kind(None)
    with pytest.raises(Unencodable):
        AvroCodec(kind).encode(changed(made, value))


@dataclasses.dataclass
class Inner:
    count: int


@dataclasses.dataclass
class Outer:
    inner: Inner
    names: list[str]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            Outer(Inner(10**30), []),
            "Outer.inner.Inner.count is 1000000000000000000000000000000, int, and has to be long",
        ),
        (Outer(Inner(1), ["a", 7]), "Outer.names is 7, int, and has to be string"),  # type: ignore[list-item]
    ],
)
def test_the_field_that_does_not_fit_is_named(value: Outer, why: str) -> None:
    """However deep it is, with what it holds and what it has to be."""
    with pytest.raises(Unencodable, match=re.escape(why)):
        AvroCodec(Outer).encode(value)


DERIVED: list[tuple[Any, Any]] = [
    (str | None, type("Text", (str,), {})("x")),
    (float | None, 3),
    (list[int] | None, (1, 2)),
    (int | None, True),
]


@pytest.mark.parametrize(("kind", "value"), DERIVED)
def test_a_value_of_a_derived_class_takes_the_branch_of_its_base(kind: Any, value: Any) -> None:
    """As Python's own rules say: a bool is an int, an int does for a float."""
    made: Any = holding(kind)
    codec = AvroCodec(made)
    codec.add_writer(OWN, codec.schema_text)
    assert (
        list(codec.decode(codec.encode(made(value)), OWN).f or []) == list(value)
        if isinstance(value, tuple | str)
        else (codec.decode(codec.encode(made(value)), OWN).f == value)
    )


# Evolution: (what wrote, a value, what reads, the value read)


def record(name: str, *fields: Any) -> Any:
    """A dataclass made of (name, type) or (name, type, default)."""
    parts = [
        (declared[0], declared[1])
        if len(declared) == 2
        else (
            declared[0],
            declared[1],
            dataclasses.field(default_factory=declared[2]) if callable(declared[2]) else declared[2],
        )
        for declared in fields
    ]
    return dataclasses.make_dataclass(name, parts)


class Before(enum.Enum):
    NEW = "new"
    OLD = "old"
    GONE = "gone"


After = enum.Enum("Before", {"OLD": "old", "NEW": "new", "__avro_default__": "old"})
ID = uuid.UUID(int=5)
EVOLUTION: list[tuple[str, Any, Any, Any, Any]] = [
    ("new field with a default", int, 1, ("g", str, "x"), "x"),
    ("new field that may be missing", int, 1, ("g", str | None, None), None),
    ("new bytes", int, 1, ("g", bytes, b"\xff"), b"\xff"),
    ("new list", int, 1, ("g", list[str], list), []),
    ("new record", int, 1, ("g", Card | None, None), None),
    ("new enum", int, 1, ("g", Color, Color.BLUE), Color.BLUE),
    ("new record with a default", int, 1, ("g", Cheque, lambda: Cheque("b")), Cheque("b")),
    ("removed field", int, 1, None, None),
    ("renamed with an alias", int, 1, ("g", Annotated[int, Alias("f")]), 1),
    ("int to long", Int32, 2**31 - 1, ("f", int), 2**31 - 1),
    ("int to double", Int32, 3, ("f", float), 3.0),
    ("long to double", int, 3, ("f", float), 3.0),
    ("float to double", Float32, 0.5, ("f", float), 0.5),
    ("string to bytes", str, "é", ("f", bytes), "é".encode()),
    ("bytes to string", bytes, "é".encode(), ("f", str), "é"),
    ("made optional", Card, Card("1", decimal.Decimal("1.00")), ("f", Card | None), Card("1", decimal.Decimal("1.00"))),
    ("made a union of records", Card, Card("1", decimal.Decimal("1.00")), ("f", Cash | Card), Card("1", decimal.Decimal("1.00"))),
    ("a union of one", Card | Cash, Cash(coins=2), ("f", Cash), Cash(coins=2)),
    ("optional made required", Card | None, Card("1", decimal.Decimal("1.00")), ("f", Card), Card("1", decimal.Decimal("1.00"))),
    ("members in another order", Card | Cash | int, 5, ("f", int | Cash | Card), 5),
    ("a map or a record", dict[str, int], {"bank": 1}, ("f", Cheque | dict[str, int]), {"bank": 1}),
    ("list made optional", list[Cheque], [Cheque("b")], ("f", list[Cheque] | None), [Cheque("b")]),
    ("long to moment", int, 1_000_000, ("f", dt.datetime), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
    ("millis to micros", Annotated[dt.datetime, AvroType({"type": "long", "logicalType": "timestamp-millis"})], NOON, ("f", dt.datetime), NOON),
    ("string to uuid", str, str(ID), ("f", uuid.UUID), ID),
    ("int to date", Int32, 1, ("f", dt.date), dt.date(1970, 1, 2)),
    ("symbols in another order", Before, Before.OLD, ("f", After), After("old")),
    ("symbol that the reader does not know", Before, Before.GONE, ("f", After), After("old")),
    ("enum made optional", Before, Before.NEW, ("f", After | None), After("new")),
    ("enum or text", Before, Before.NEW, ("f", After | str), After("new")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "value", "field", "wanted"), EVOLUTION, ids=[case[0] for case in EVOLUTION])
def test_an_older_version_is_read(name: str, kind: Any, value: Any, field: Any, wanted: Any) -> None:
    """What an earlier class wrote becomes a value of the present one, with the classes that it names."""
    old = record("Event", ("id", int), ("f", kind))
    new = record("Event", ("id", int), *([field] if field else []))
    writer, reader = AvroCodec(old), AvroCodec(new)
    reader.add_writer(OTHER, writer.schema_text)
    decoded: Any = reader.decode(writer.encode(old(9, value)), OTHER)
    assert type(decoded) is new
    assert decoded.id == 9
    if field:
        assert getattr(decoded, field[0]) == wanted
        assert type(getattr(decoded, field[0])) is type(wanted)


BROKEN: list[tuple[str, Any, Any, Any]] = [
    ("new field without a default", int, 1, ("g", str)),
    ("another type", int, 1, ("f", str)),
    ("null where none is allowed", int | None, None, ("f", int)),
    ("a record that the reader does not have", Card | Cash, Cash(coins=1), ("f", Card)),
    ("an enum without a default", Before, Before.GONE, ("f", enum.Enum("Before", {"OLD": "old"}))),
]


@pytest.mark.parametrize(("name", "kind", "value", "field"), BROKEN, ids=[case[0] for case in BROKEN])
def test_a_version_that_does_not_go_together_is_undecodable(name: str, kind: Any, value: Any, field: Any) -> None:
    """Such a record is for the dead letters, not for a guess."""
    old, new = record("Event", ("f", kind)), record("Event", field)
    writer, reader = AvroCodec(old), AvroCodec(new)
    reader.add_writer(OTHER, writer.schema_text)
    with pytest.raises(Undecodable, match="Event"):
        reader.decode(writer.encode(old(value)), OTHER)


SEEN = uuid.UUID(int=5)


@pytest.mark.parametrize(
    ("kind", "written", "plain", "wanted"),
    [
        (uuid.UUID | None, "string", str(SEEN), SEEN),
        (dt.datetime | None, "long", 1_767_268_800_000_000, NOON),
        (dt.date | None, "int", 1, dt.date(1970, 1, 2)),
        (dt.time | None, "long", 1_000_000, dt.time(0, 0, 1)),
        (Annotated[decimal.Decimal, Precision(9, 2)] | None, "bytes", b"\x04\xd2", decimal.Decimal("12.34")),
        (list[uuid.UUID | None], {"type": "array", "items": ["null", "string"]}, [None, str(SEEN)], [None, SEEN]),
        (dict[str, dt.date] | None, {"type": "map", "values": "int"}, {"a": 1}, {"a": dt.date(1970, 1, 2)}),
        (list[dt.date] | None, {"type": "array", "items": "int"}, [1], [dt.date(1970, 1, 2)]),
        (Color | uuid.UUID, "string", str(SEEN), SEEN),
        (Color | uuid.UUID, "string", "red", Color.RED),
    ],
)
@pytest.mark.parametrize("optional", [False, True])
def test_a_writer_without_the_logical_type_is_read_as_the_readers_type(
    kind: Any, written: Any, plain: Any, wanted: Any, optional: bool
) -> None:
    """Inside unions and containers too, whether or not the writer has a union."""
    made = holding(kind)
    codec: AvroCodec[Any] = AvroCodec(made)
    schema = {
        "type": "record",
        "name": "Holder",
        "fields": [{"name": "f", "type": ["null", written] if optional else written}],
    }
    if optional and type(None) not in getattr(kind, "__args__", ()):
        schema["fields"][0]["type"] = [written]  # type: ignore[index]
    codec.add_writer(OTHER, json.dumps(schema))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"f": plain})
    decoded = codec.decode(body.getvalue(), OTHER).f
    assert (decoded, type(decoded)) == (wanted, type(wanted))


def test_a_plain_number_that_may_be_a_day_or_a_moment_is_refused() -> None:
    """What it is is unknown without the logical type."""
    made = holding(dt.date | dt.datetime | None)
    codec: AvroCodec[Any] = AvroCodec(made)
    codec.add_writer(OTHER, '{"type":"record","name":"Holder","fields":[{"name":"f","type":["null","long"]}]}')
    with pytest.raises(Undecodable, match="may be date or datetime"):
        codec.decode(b"\x02\x02", OTHER)


def test_a_class_default_is_made_anew_for_each_record() -> None:
    """Two records that lack a list do not share one."""
    old, new = record("Event", ("id", int)), record("Event", ("id", int), ("many", list[int], list))
    writer, reader = AvroCodec(old), AvroCodec(new)
    reader.add_writer(OTHER, writer.schema_text)
    first: Any = reader.decode(writer.encode(old(1)), OTHER)
    first.many.append(1)
    second: Any = reader.decode(writer.encode(old(2)), OTHER)
    assert second.many == []


def test_top_level_types_that_are_no_record() -> None:
    """A topic of plain values, of lists, of either of two records."""
    for kind, value in (
        (int, 5),
        (list[Card], [Card("1", decimal.Decimal("2.50"))]),
        (Card | Cash, Cash(coins=3)),
        (str | None, "x"),
        (Color, Color.RED),
    ):
        codec: AvroCodec[Any] = AvroCodec(kind)  # type: ignore[arg-type]
        codec.add_writer(OWN, codec.schema_text)
        assert codec.decode(codec.encode(value), OWN) == value


def test_a_union_of_records_at_the_top_reads_what_one_of_them_wrote() -> None:
    """A topic that held one type and now holds two."""
    writer, reader = AvroCodec(Cheque), AvroCodec(Card | Cheque)  # type: ignore[arg-type]
    reader.add_writer(OTHER, writer.schema_text)
    assert reader.decode(writer.encode(Cheque("b")), OTHER) == Cheque("b")


@pytest.mark.parametrize(
    "text", ["", "{", "5", "null", "[]", "{}", '{"type":5}', '"Unknown"', '{"type":"record"}', "x" * 99]
)
def test_a_schema_that_is_none_is_undecodable(text: str) -> None:
    """Whatever a registry holds under an id."""
    codec = AvroCodec(Card)
    try:
        codec.add_writer(OTHER, text)
        codec.decode(codec.encode(Card("1", decimal.Decimal("1.00"))), OTHER)
    except Undecodable:
        return
    raise AssertionError(f"{text!r} was read")


def test_a_plain_codec_leaves_values_as_fastavro_reads_them() -> None:
    """For tools: no classes, no names of branches."""
    typed = AvroCodec(Everything)
    plain = AvroCodec(dict, schema=json.loads(AvroCodec(Node).schema_text))
    plain.add_writer(OWN, plain.schema_text)
    assert plain.decode(plain.encode({"value": 1, "next": {"value": 2, "next": None}}), OWN) == {
        "value": 1,
        "next": {"value": 2, "next": None},
    }
    assert (plain.name, typed.name, AvroCodec(Cash).name) == ("Node", "Everything", "money.Cash")
