"""Hypothesis strategies that make any message, in any version, from the class definitions alone."""

from typing import Any

from hypothesis import strategies as st

from busway_protocol.apis import APIS
from busway_protocol.schema import Field, fields_of
from busway_protocol.types import Kind

INTEGERS = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def every_version() -> list[tuple[type[Any], int]]:
    """Every message class with each of its versions."""
    return [
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ]


def primitive(kind: Kind) -> st.SearchStrategy[Any]:
    """Values of one wire type."""
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return st.integers(low, high)
    if kind is Kind.BOOL:
        return st.booleans()
    if kind is Kind.FLOAT64:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is Kind.UUID:
        return st.uuids()
    if kind is Kind.STRING:
        return TEXT
    return st.binary(max_size=12)


def value(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Values of one field in `version`."""
    strategy = primitive(field.kind) if field.kind else messages(field.struct, version)
    if field.is_array:
        strategy = st.lists(strategy, max_size=3)
    return st.none() | strategy if field.nullable(version) and field.kind is not Kind.RECORDS else strategy


def messages(cls: type[Any] | None, version: int) -> st.SearchStrategy[Any]:
    """Messages of class `cls` with all the fields that `version` has."""
    assert cls is not None
    present = {field.name: value(field, version) for field in fields_of(cls) if field.exists(version)}
    return st.builds(cls, **present)
