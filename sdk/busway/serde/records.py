"""Fields of record classes.

Here: dataclasses, msgspec structs, TypedDicts and pydantic models as lists of fields.
Not here: Avro schemas (`infer`), values (`avro`). Neither msgspec nor pydantic is imported: a struct's or model's class
exists only if its library is loaded.
"""

import dataclasses
import inspect
import sys
import types
import typing
from typing import Annotated, Any, Final, NotRequired, Required

from busway.errors import BuswayError

NO_DEFAULT: Final = object()


class CannotInfer(BuswayError, TypeError):
    """A type has no Avro schema. The text names the field and an alternative."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a record class.

    Attributes:
        default: for the schema; `NO_DEFAULT` for none.
        optional: the class can be called without it, even where the schema has no default.
    """

    name: str
    type: Any
    default: Any
    optional: bool


def is_record(kind: Any) -> bool:
    return inspect.isclass(kind) and (
        dataclasses.is_dataclass(kind) or _is_struct(kind) or is_typed_dict(kind) or is_model(kind)
    )


def _is_struct(kind: type) -> bool:
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and issubclass(kind, msgspec.Struct)


def is_typed_dict(kind: Any) -> bool:
    return typing.is_typeddict(kind)


def is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic.main")
    return pydantic is not None and inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel)


def members(kind: Any) -> tuple[Any, ...] | None:
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return typing.get_args(kind)
    return None


def unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type without `Annotated`, `NewType` and `type` statements, and `Annotated`'s metadata."""
    extras: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(kind) is Annotated:
            kind, *metadata = typing.get_args(kind)
            extras += tuple(metadata)
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind, extras


def strip(kind: Any) -> Any:
    return unwrap(kind)[0]


def fields(kind: type) -> list[FieldType]:
    """Return a record class's fields with resolved annotations.

    Raise `CannotInfer` if one cannot be resolved, or the class needs a value that no record holds.
    """
    if is_model(kind):
        return _model_fields(kind)
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as problem:
        raise CannotInfer(
            f"{kind.__name__}: {problem}; its annotations must be importable where the class is"
        ) from None
    if is_typed_dict(kind):
        return [_key(kind, name, hint) for name, hint in hints.items()]
    if not dataclasses.is_dataclass(kind):
        import msgspec

        return [
            _field(field.name, hints, _given(field.default, field.default_factory, msgspec.NODEFAULT))
            for field in msgspec.structs.fields(kind)
        ]
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise CannotInfer(
                f"{kind.__name__}.{name} is an InitVar: no record could be read back, because it is not kept"
            )
    return [
        _field(field.name, hints, _given(field.default, field.default_factory, dataclasses.MISSING))
        for field in dataclasses.fields(kind)
        if field.init
    ]


def _key(kind: Any, name: str, hint: Any) -> FieldType:
    if typing.get_origin(hint) in {Required, NotRequired}:
        (hint,) = typing.get_args(hint)
    if name in kind.__required_keys__:
        return FieldType(name, hint, NO_DEFAULT, optional=False)
    return FieldType(name, hint | None, None, optional=True)


def droppable(kind: Any) -> frozenset[str]:
    """Return a TypedDict's keys to omit for null: optional, never None."""
    if not is_typed_dict(kind):
        return frozenset()
    hints = typing.get_type_hints(kind)
    return frozenset(name for name in kind.__optional_keys__ if type(None) not in (members(hints[name]) or ()))


def _model_fields(kind: Any) -> list[FieldType]:
    if not kind.__pydantic_complete__:
        kind.model_rebuild(raise_errors=False)
    model_fields = []
    for name, field in kind.model_fields.items():
        hint = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        if field.is_required():
            model_fields.append(FieldType(name, hint, NO_DEFAULT, optional=False))
        elif field.default_factory is None:
            model_fields.append(FieldType(name, hint, *_given(field.default, None, NO_DEFAULT)))
        elif field.default_factory_takes_validated_data:
            model_fields.append(FieldType(name, hint, NO_DEFAULT, optional=True))
        else:
            model_fields.append(FieldType(name, hint, *_given(NO_DEFAULT, field.default_factory, NO_DEFAULT)))
    return model_fields


def _field(name: str, hints: dict[str, Any], given: tuple[Any, bool]) -> FieldType:
    default, optional = given
    return FieldType(name, hints[name], default, optional)


def _given(default: Any, factory: Any, missing: Any) -> tuple[Any, bool]:
    """Return the schema default and whether a field is optional.

    Only constants become schema defaults: a factory may make a new id or the current time.
    """
    if default is not missing:
        return (default if _is_constant(default) else NO_DEFAULT), True
    if factory is missing:
        return NO_DEFAULT, False
    if factory in {list, tuple, dict} or (is_record(factory) and _makes_constants(factory)):
        return factory(), True
    return NO_DEFAULT, True


def _is_constant(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_constant, value))
    if isinstance(value, dict):
        return all(map(_is_constant, value.values()))
    return not is_record(type(value)) or _makes_constants(type(value))


def _makes_constants(kind: Any) -> bool:
    own_code = hasattr(kind, "__post_init__") or (is_model(kind) and "model_post_init" in vars(kind))
    return not own_code and all(field.default is not NO_DEFAULT or not field.optional for field in fields(kind))
