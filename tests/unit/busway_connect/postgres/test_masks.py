"""Settings that hide what is in columns, and names that Avro takes; both beside Debezium in `tests/conformance/connect_postgres`."""

import hashlib
from dataclasses import replace

import pytest

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres.catalog import Column, Table, TableId, TypeInfo, Types
from busway_connect.postgres.names import adjusted
from busway_connect.postgres.records import Layout, Origin
from busway_connect.postgres.settings import parse, problems

GOOD = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
ORIGIN = Origin(at_us=0, snapshot="false", lsn=1, xid=1, commit_lsn=None)
TEXT, VARCHAR, INT = 25, 1043, 23
PEOPLE = Table(
    id=TableId(schema="public", name="people"),
    columns=(
        Column(name="id", type_oid=INT, type_modifier=-1, optional=False, default=None),
        Column(name="ssn", type_oid=TEXT, type_modifier=-1, optional=True, default=None),
        Column(name="e-mail", type_oid=VARCHAR, type_modifier=14, optional=False, default=None),
    ),
    key=("id",),
    replica_identity="d",
)


def types() -> Types:
    """The types of the table."""
    known = ((TEXT, "text"), (VARCHAR, "varchar"), (INT, "int4"))
    return Types(TypeInfo(oid=oid, name=name, kind="b") for oid, name in known)


def layout(table: Table = PEOPLE, **settings: str) -> Layout:
    """A layout under settings with `__` for `.`."""
    return Layout(
        table, types(), parse({**GOOD, **{name.replace("__", "."): value for name, value in settings.items()}}), "1"
    )


def rows(made: Layout) -> list[str]:
    """All that goes out of a create, an update without old row, a delete with the key alone, and their keys."""
    parts = [
        *made.created(("1", "123-45-6789", "ann@x.org"), ORIGIN, 0),
        *made.updated(None, ("1", "123-45-6789", "ann@x.org"), ORIGIN, 0),
        *made.deleted(("1", "123-45-6789", "ann@x.org"), ORIGIN, 0),
    ]
    return [str(part) for part in parts]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("column.mask.with.4.chars", "****"),
        ("column.mask.with.0.chars", "''"),
        ("column.truncate.to.3.chars", "123"),
        ("column.mask.hash.v2.SHA-256.with.salt.a.b", hashlib.sha256(b"a.b123-45-6789").hexdigest()),
        ("column.mask.hash.MD5.with.salt.s", hashlib.md5(b"s\xac\xed\x00\x05t\x00\x0b123-45-6789").hexdigest()),
    ],
)
def test_what_is_to_be_hidden_goes_out_nowhere(name: str, shown: str) -> None:
    """Neither in a row before nor after a change; an unmasked neighbour does."""
    shown_rows = rows(layout(**{name: r"public\.people\.ssn"}))
    assert all("123-45-6789" not in shown_row for shown_row in shown_rows)
    assert shown in shown_rows[0]
    assert "ann@x.org" in shown_rows[0]


def test_a_hash_is_cut_to_its_column_and_a_mask_stands_for_null_too() -> None:
    """As in Debezium; a hash of nothing is nothing."""
    hashed = layout(**{"column.mask.hash.v2.SHA-256.with.salt.x": ".*"}).row(("1", None, "a"))
    assert hashed["e-mail"] == hashlib.sha256(b"xa").hexdigest()[:10]
    assert hashed["ssn"] is None
    assert layout(**{"column.mask.with.2.chars": ".*ssn"}).row(("1", None, "a"))["ssn"] == "**"


def test_truncation_comes_before_masks_and_says_so_in_the_schema() -> None:
    """The first that matches counts, whatever their order in the config."""
    made = layout(**{"column.mask.with.2.chars": ".*", "column.truncate.to.3.chars": ".*ssn"})
    assert made.row(("1", "abcdef", "x")) == {"id": 1, "ssn": "abc", "e-mail": "**"}
    row = made.schema.fields[1].schema
    assert {schema_field.name: dict(schema_field.schema.parameters) for schema_field in row.fields} == {
        "id": {"masked": "true"}, "ssn": {"truncateLength": "3"}, "e-mail": {"masked": "true"},
    }  # fmt: skip
    assert made.unmasked == ["id"]


@pytest.mark.parametrize(("text", "cut"), [("aé😀b", "aé"), ("a😀b", "a😀"), ("abc", "abc"), ("ab😀", "ab?")])
def test_a_text_is_cut_where_java_cuts_it(text: str, cut: str) -> None:
    """By UTF-16; half a character goes as Java writes it."""
    assert layout(**{"column.truncate.to.3.chars": ".*ssn"}).row(("1", text, "x"))["ssn"][: len(cut)] == cut


def test_a_column_of_the_key_cannot_be_hidden() -> None:
    """Debezium lets it out in the key; here the setting is named and the task ends."""
    with pytest.raises(ConfigInvalid, match=r"column\.mask\.with\.4\.chars: e-mail of public\.people is in the key"):
        layout(replace(PEOPLE, key=("e-mail",)), **{"column.mask.with.4.chars": ".*mail"})
    with pytest.raises(ConfigInvalid, match=r"ssn of public\.people is in the key"):
        layout(**{"column.mask.with.4.chars": ".*ssn", "message.key.columns": "public.people:ssn"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("column.truncate.to.0.chars", "a"),
        ("column.mask.hash.ROT13.with.salt.x", "a"),
        ("column.mask.with.3.chars", "("),
        ("column.mask.with.3.chars", " , "),
    ],
)
def test_a_mask_that_cannot_be_is_named(name: str, value: str) -> None:
    """Before anything is read."""
    assert set(problems({**GOOD, name: value})) == {name}


@pytest.mark.parametrize(
    ("mode", "name", "of_field", "of_schema"),
    [
        ("none", "e-mail", "e-mail", "e-mail"),
        ("avro", "e-mail", "e_mail", "e_mail"),
        ("avro", "1st.a_b", "_1st_a_b", "_1st.a_b"),
        ("avro", "-x", "_x", "_x"),
        ("avro", "ü😀", "___", "___"),
        ("avro_unicode", "e-mail", "e_u002dmail", "e_u002dmail"),
        ("avro_unicode", "1st.a_b", "_u0031st_u002ea_u005fb", "_u0031st.a_u005fb"),
        ("avro_unicode", "ü😀", "_u00fc_ud83d_ude00", "_u00fc_ud83d_ude00"),
        ("avro_unicode", "aŁ", "a_u141", "a_u141"),
    ],
)
def test_names_become_what_avro_takes(mode: str, name: str, of_field: str, of_schema: str) -> None:
    """As Debezium's own adjusters answer."""
    assert (adjusted(name, mode, dots=False), adjusted(name, mode, dots=True)) == (of_field, of_schema)


def test_a_table_with_a_name_that_is_none_in_avro_is_captured() -> None:
    """Its field and its schemas have names that Avro takes, in key and value."""
    made = layout(
        replace(PEOPLE, key=("e-mail",)),
        **{"field.name.adjustment.mode": "avro", "topic.prefix": "my-bank", "schema.name.adjustment.mode": "avro"},
    )
    (part,) = made.created(("1", "x", "ann@x.org"), ORIGIN, 0)
    assert part.key == {"e_mail": "ann@x.org"}
    assert made.key_schema is not None
    assert (made.key_schema.name, made.key_schema.fields[0].name) == ("my_bank.public.people.Key", "e_mail")
    assert made.topic == "my-bank.public.people"


def test_two_columns_that_become_one_are_refused() -> None:
    """With both names and the remedy."""
    both = replace(PEOPLE, columns=(*PEOPLE.columns, replace(PEOPLE.columns[1], name="e_mail")))
    with pytest.raises(ConfigInvalid, match=r"the columns e-mail and e_mail of public\.people both become e_mail"):
        layout(both, **{"field.name.adjustment.mode": "avro"})
    assert layout(both, **{"field.name.adjustment.mode": "avro_unicode"}).columns >= {"e-mail", "e_mail"}
