"""Positions and the stream's core, without a server."""

import itertools
from typing import Any

import pytest

from busway_connect.connector import SourceRecord
from busway_connect.postgres import pgoutput
from busway_connect.postgres.catalog import Column, Table, TableId, TypeInfo, Types
from busway_connect.postgres.columns import codec_for
from busway_connect.postgres.defaults import NONE, default_of
from busway_connect.postgres.positions import InSnapshot, InStream, lsn_number, lsn_text, order_of, read_offset
from busway_connect.postgres.records import Layout, StaleType
from busway_connect.postgres.settings import parse
from busway_connect.postgres.stream import OutOfOrder, Stream

SETTINGS = parse({"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"})
TYPES = Types(
    [
        TypeInfo(oid=23, name="int4", kind="b"),
        TypeInfo(oid=25, name="text", kind="b"),
        TypeInfo(oid=1700, name="numeric", kind="b"),
        TypeInfo(oid=1184, name="timestamptz", kind="b"),
        TypeInfo(oid=900, name="mood", kind="e", labels=("sad", "ok")),
        TypeInfo(oid=901, name="email", kind="d", base=25),
    ]
)
TABLE = Table(
    id=TableId(schema="public", name="t"),
    columns=(
        Column(name="id", type_oid=23, type_modifier=-1, optional=False),
        Column(name="mood", type_oid=900, type_modifier=-1, optional=True),
    ),
    key=("id",),
)
BEGIN = pgoutput.Begin(final_lsn=100, commit_us=5, xid=7)
COMMIT = pgoutput.Commit(commit_lsn=100, end_lsn=110, commit_us=5)


def _stream(position: InStream) -> Stream:
    stream = Stream(position, SETTINGS, (), fresh=False)
    stream.layouts = {1: Layout(TABLE, TYPES, SETTINGS, "0"), 2: None}
    return stream


def _transaction() -> list[tuple[int, Any]]:
    """Two rows at one LSN, a change of the key in three records, a delete in two."""
    return [
        (90, BEGIN),
        (50, pgoutput.Insert(relation=1, new=("1", "sad"))),
        (50, pgoutput.Insert(relation=1, new=("2", None))),
        (60, pgoutput.Update(relation=1, old=("1", None), old_is_key=True, new=("3", "ok"))),
        (65, pgoutput.Insert(relation=2, new=("9",))),
        (70, pgoutput.Delete(relation=1, old=("2", None), old_is_key=True)),
        (110, COMMIT),
    ]


def _run(position: InStream) -> list[SourceRecord]:
    stream = _stream(position)
    return [record for lsn, message in _transaction() for record in stream.feed(lsn, message, 1)]


def test_from_any_record_the_rest_comes_and_nothing_else() -> None:
    """Started with the offset of each record in turn, the stream hands over exactly what is behind it, in a rising order."""
    whole = _run(InStream(generation=3, commit_lsn=40))
    assert [(record.key["id"], record.value["op"] if record.value else None) for record in whole] == [
        (1, "c"), (2, "c"), (1, "d"), (1, None), (3, "c"), (2, "d"), (2, None),
    ]  # fmt: skip
    places = [order_of(record.offset) for record in whole]
    assert all(place is not None for place in places)
    assert all(first < second for first, second in itertools.pairwise(places))
    for number, record in enumerate(whole):
        position = read_offset(record.offset)
        assert isinstance(position, InStream)
        assert position.offset() == record.offset
        rest = _run(position)
        assert [(record.key, record.value) for record in rest] == [
            (record.key, record.value) for record in whole[number + 1 :]
        ]
        assert [order_of(record.offset) for record in rest] == places[number + 1 :]


def test_the_last_record_of_a_transaction_lets_the_server_forget_it() -> None:
    """Only that one's offset says that the transaction is behind."""
    offsets = [record.offset["lsn_commit"] for record in _run(InStream(generation=3, commit_lsn=40))]
    assert offsets == [40, 40, 40, 40, 40, 40, 110]


def test_a_heartbeat_lies_behind_what_came_and_before_what_comes() -> None:
    """Its place in the order does not depend on when it came."""
    stream = _stream(InStream(generation=3, commit_lsn=40))
    beat = order_of(stream.heartbeat(100, 1).offset)
    assert beat is not None
    assert beat < (order_of(_run(InStream(generation=3, commit_lsn=40))[0].offset) or [])


def test_snapshot_positions_come_before_the_stream_and_in_the_order_of_tables_and_keys() -> None:
    """Also after a snapshot taken again, whose generation is greater."""
    at = {"lsn": 40, "xid": 1, "at_us": 1}
    places = [
        InSnapshot(generation=3, table="public.a", key=("9",), order=(9,), **at).offset(),
        InSnapshot(generation=3, table="public.a", key=("10",), order=(10,), **at).offset(),
        InSnapshot(generation=3, table="public.b", key=("x",), order=("x",), last=True, **at).offset(),
        InStream(generation=3, commit_lsn=40, transaction_lsn=100, lsn=50, events=1).offset(),
        InSnapshot(generation=4, table="public.a", key=("1",), order=(1,), **at).offset(),
    ]
    orders = [order_of(place) for place in places]
    assert orders == sorted(orders, key=lambda order: order or [])
    assert [read_offset(place).offset() for place in places] == places
    assert order_of(InSnapshot(generation=3, table="public.c", **at).offset()) is None


def test_debeziums_own_offset_is_understood() -> None:
    """The transaction under way comes again from its beginning."""
    stored = {"lsn_proc": 40, "lsn_commit": 30, "lsn": 50, "txId": 7, "ts_usec": 1, "messageType": "INSERT"}
    assert read_offset(stored) == InStream(generation=0, commit_lsn=30)
    with pytest.raises(ValueError, match="no position"):
        read_offset({"file": "a"})


def test_a_message_that_cannot_stand_there_is_refused() -> None:
    """A change outside a transaction, of a table that was never described, a commit without a beginning."""
    stream = _stream(InStream(generation=0, commit_lsn=0))
    with pytest.raises(OutOfOrder):
        stream.feed(1, pgoutput.Insert(relation=1, new=("1", None)), 1)
    with pytest.raises(OutOfOrder):
        stream.feed(1, COMMIT, 1)
    stream.feed(1, BEGIN, 1)
    with pytest.raises(OutOfOrder):
        stream.feed(1, pgoutput.Insert(relation=5, new=("1",)), 1)


def test_an_enums_new_label_is_noticed_and_the_message_can_come_again() -> None:
    """The types are read again, and the same message fed again, without being counted twice."""
    stream = _stream(InStream(generation=0, commit_lsn=0))
    stream.feed(90, BEGIN, 1)
    message = pgoutput.Insert(relation=1, new=("1", "new"))
    with pytest.raises(StaleType):
        stream.feed(50, message, 1)
    types = Types([TypeInfo(oid=23, name="int4", kind="b"), TypeInfo(oid=900, name="mood", kind="e", labels=("new",))])
    stream.layouts[1] = Layout(TABLE, types, SETTINGS, "0")
    assert stream.feed(50, message, 1) == []
    (record,) = stream.feed(110, COMMIT, 1)
    assert record.value["after"] == {"id": 1, "mood": "new"}
    assert record.offset["lsn_events_processed"] == 1


def test_lsn_in_text_and_number() -> None:
    """As PostgreSQL prints it."""
    assert lsn_text(lsn_number("16/B374D848")) == "16/B374D848"


@pytest.mark.parametrize(
    ("oid", "modifier", "expression", "value"),
    [
        (23, -1, "7", 7),
        (23, -1, "'-7'::integer", -7),
        (23, -1, "nextval('t_id_seq'::regclass)", 0),
        (23, -1, "(1 + 2)", NONE),
        (23, -1, None, NONE),
        (25, -1, "'it''s'::text", "it's"),
        (25, -1, "NULL::text", NONE),
        (25, -1, "upper('a'::text)", ""),
        (1700, ((6 << 16) | 3) + 4, "1.5", b"\x05\xdc"),
        (1700, -1, "1.5", NONE),
        (1184, -1, "now()", "1970-01-01T00:00:00.000000Z"),
        (1184, -1, "CURRENT_TIMESTAMP", "1970-01-01T00:00:00.000000Z"),
        (900, -1, "'ok'::mood", "ok"),
        (901, -1, "'a'::text", NONE),
    ],
)
def test_defaults(oid: int, modifier: int, expression: str | None, value: Any) -> None:
    """A constant is read, a function is the type's zero, anything else is none."""
    codec = codec_for(TYPES, oid, modifier, SETTINGS)
    assert codec is not None
    assert default_of(codec, expression) == value
