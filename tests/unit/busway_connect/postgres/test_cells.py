"""A column as a field: its schema, its default, its mask; conflicts between columns."""

import pytest

from busway_connect.connector import ConfigInvalid
from busway_connect.postgres.catalog import Column, TableId, TypeInfo, Types
from busway_connect.postgres.cells import (
    cell_of,
    column_schema,
    masked,
    masked_length,
    require_no_key,
    require_own_names,
)
from busway_connect.postgres.columns import NO_PLACEHOLDER, UNLIMITED, Codec
from busway_connect.postgres.masks import Mask
from busway_connect.schema import Field, Schema

TABLE = TableId(schema="public", name="people")
STARS = Mask(setting="column.mask.with.2.chars", columns=(), chars=2)
CUT = Mask(setting="column.truncate.to.3.chars", columns=(), chars=3, truncates=True)
TEXT, VARCHAR, UUID, INT = 25, 1043, 2950, 23
TYPES = Types(
    TypeInfo(oid=oid, name=name, kind="b")
    for oid, name in ((TEXT, "text"), (VARCHAR, "varchar"), (UUID, "uuid"), (INT, "int4"))
)
STRING = Codec(schema=Schema(type="string"), read=str, fallback="", default_type="text")


def column(oid: int = TEXT, *, optional: bool = False, default: str | None = None, modifier: int = -1) -> Column:
    """A column named `c`."""
    return Column(name="c", type_oid=oid, type_modifier=modifier, optional=optional, default=default)


def test_the_schema_has_the_columns_default() -> None:
    """As an expression of PostgreSQL; one that computes is none."""
    schema = column_schema(column(default="'x'::text"), STRING)
    assert (schema.optional, schema.default, schema.has_default) == (False, "x", True)
    assert not column_schema(column(), STRING).has_default
    assert column_schema(column(optional=True), STRING).optional


def test_a_value_that_is_missing_in_the_log() -> None:
    """NULL where it may be; else the default, or the type's fallback."""
    with_default = column(default="'x'::text")
    assert cell_of(0, column(optional=True), STRING, Schema(type="string"), "c").nothing is None
    assert cell_of(0, column(), STRING, Schema(type="string"), "c").nothing == ""
    assert cell_of(0, with_default, STRING, column_schema(with_default, STRING), "c").nothing == "x"


def test_a_mask_hides_every_value() -> None:
    """Also the placeholder of a value that did not change; no placeholder stays none."""
    cell = cell_of(0, column(), STRING, Schema(type="string"), "c")
    hidden = masked(cell, STARS, UNLIMITED)
    assert (hidden.read("secret"), hidden.nothing) == ("**", "**")
    assert hidden.unchanged is NO_PLACEHOLDER
    assert masked(cell, CUT, UNLIMITED).read("secret") == "sec"


@pytest.mark.parametrize(
    ("oid", "modifier", "mask", "length"),
    [
        (TEXT, -1, STARS, UNLIMITED),
        (VARCHAR, 14, STARS, 10),
        (VARCHAR, 14, CUT, 10),
        (UUID, -1, STARS, None),
        (UUID, -1, CUT, UNLIMITED),
        (INT, -1, STARS, None),
    ],
)
def test_what_can_be_masked(oid: int, modifier: int, mask: Mask, length: int | None) -> None:
    """Texts; of other types those that are written as text can be cut."""
    assert masked_length(TYPES, column(oid, modifier=modifier), STRING, mask) == length


def test_a_number_passes_as_it_is() -> None:
    """Debezium neither masks nor cuts it."""
    number = Codec(schema=Schema(type="int32"), read=int)
    assert masked_length(TYPES, column(INT), number, CUT) is None


def test_names_that_become_one() -> None:
    """Both columns are named, with what to set."""
    fields = {name: Field(name="a_b", schema=Schema(type="string")) for name in ("a-b", "a_b")}
    with pytest.raises(ConfigInvalid, match=r"the columns a-b and a_b of public\.people both become a_b"):
        require_own_names(TABLE, fields)
    require_own_names(TABLE, {"a-b": fields["a-b"]})


def test_a_masked_column_of_the_key() -> None:
    """Keys go out as they are, so the mask would hide nothing."""
    require_no_key(TABLE, "c", ("id",), STARS)
    with pytest.raises(ConfigInvalid, match=r"c of public\.people is in the key") as refused:
        require_no_key(TABLE, "c", ("id", "c"), STARS)
    assert list(refused.value.errors) == ["column.mask.with.2.chars"]
