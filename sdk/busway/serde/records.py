"""What a record class is made of.

What lives here: dataclasses and msgspec structs as lists of fields, and looking through `Annotated`, `NewType` and unions. What does
not: their Avro schema (`infer`), their values (`avro`).
"""

import dataclasses
import inspect
import types
import typing
from typing import Annotated, Any, Final

import msgspec

from busway.errors import BuswayError

NO_DEFAULT: Final = object()


class CannotInfer(BuswayError, TypeError):
    """A type has no Avro schema; names the field and what to use instead."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a record class.

    Attributes:
        default: the value that goes into a schema; `NO_DEFAULT` for none.
        optional: whether the class can be called without it, although that need not show in the schema.
    """

    name: str
    type: Any
    default: Any
    optional: bool


def is_record(kind: Any) -> bool:
    """Whether values of this type become Avro records."""
    return inspect.isclass(kind) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def members(kind: Any) -> tuple[Any, ...] | None:
    """The members of a union type; None for any other."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return typing.get_args(kind)
    return None


def unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type without `Annotated`, `NewType` and `type` statements, and what `Annotated` said."""
    extras: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(kind) is Annotated:
            kind, *found = typing.get_args(kind)
            extras += tuple(found)
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind, extras


def strip(kind: Any) -> Any:
    """The type alone."""
    return unwrap(kind)[0]


def fields(kind: type) -> list[FieldType]:
    """The fields of a dataclass or struct, with their annotations resolved.

    Raises:
        CannotInfer: an annotation cannot be resolved, or the class needs what no record holds.
    """
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as problem:
        raise CannotInfer(
            f"{kind.__name__}: {problem}; its annotations must be importable where the class is"
        ) from None
    if not dataclasses.is_dataclass(kind):
        return [
            _field(one.name, hints, _given(one.default, one.default_factory, msgspec.NODEFAULT))
            for one in msgspec.structs.fields(kind)
        ]
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise CannotInfer(
                f"{kind.__name__}.{name} is an InitVar: no record could be read back, because it is not kept"
            )
    return [
        _field(one.name, hints, _given(one.default, one.default_factory, dataclasses.MISSING))
        for one in dataclasses.fields(kind)
        if one.init
    ]


def _field(name: str, hints: dict[str, Any], given: tuple[Any, bool]) -> FieldType:
    default, optional = given
    return FieldType(name, hints[name], default, optional)


def _given(default: Any, factory: Any, missing: Any) -> tuple[Any, bool]:
    """A factory's value is a schema's default only if it is always the same: a new id or the present time is not."""
    if default is not missing:
        return default, True
    if factory is missing:
        return NO_DEFAULT, False
    made = factory()
    fixed = isinstance(made, list | tuple | dict) or is_record(type(made))
    return (made if fixed and made == factory() else NO_DEFAULT), True
