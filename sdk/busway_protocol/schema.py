"""Descriptions of message classes for the compiler, from annotated fields.

Here: the decorators `message` and `struct`, and `Field`, one annotation's meaning.
Not here: code generation (`compile`), the list of APIs (`apis`).

Layouts and names of fields are those of Kafka 4.3.1. One class serves all versions of a message: only the codec depends
on the version. Classes have slots and
keyword arguments; unknown tagged fields are kept in `unknown_tags` and written back (KIP-482).
"""

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from busway_protocol.structs import Declared, struct_class
from busway_protocol.types import (
    ZERO_UUID,
    Entity,
    Flag,
    Kind,
    NullableSince,
    NullableUntil,
    Since,
    Tag,
    Until,
)

T = TypeVar("T")
Direction: TypeAlias = Literal["request", "response", "header", "data"]
NEVER: Final = 32_767
"""A version that no message reaches."""

_IMPLICIT: Final[dict[Kind, Any]] = {
    Kind.BOOL: False,
    Kind.FLOAT64: 0.0,
    Kind.UUID: ZERO_UUID,
    Kind.STRING: "",
    Kind.BYTES: b"",
    Kind.RECORDS: None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo:
    api_key: int | None
    direction: Direction
    min_version: int
    max_version: int
    flexible_since: int

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_since


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its type, and the versions in which it exists, is nullable or tagged."""

    name: str
    kind: Kind | None
    struct: type[Any] | None
    is_array: bool
    since: int
    until: int
    nullable_since: int
    nullable_until: int
    tag: int | None
    tagged_since: int
    ignorable: bool
    flexible: bool
    entity: str | None
    default: Any

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        return self.nullable_since <= version <= self.nullable_until

    def tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tagged_since


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Make a structure inside messages, with unknown tagged fields."""
    cls.__annotations__ = {**cls.__annotations__, "unknown_tags": dict[int, bytes] | None}
    cls.unknown_tags = field(default=None, repr=False)  # type: ignore[attr-defined]
    return struct_class(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *,
    versions: tuple[int, int],
    flexible: int | None = None,
    api_key: int | None = None,
    direction: Direction = "data",
) -> Callable[[type[T]], type[T]]:
    """Make a message class; `flexible` is its first flexible version (KIP-482)."""

    def decorate(cls: type[T]) -> type[T]:
        made = struct(cls)
        info = MessageInfo(
            api_key=api_key,
            direction=direction,
            min_version=versions[0],
            max_version=versions[1],
            flexible_since=NEVER if flexible is None else flexible,
        )
        made.message_info = info  # type: ignore[attr-defined]
        return made

    return decorate


def info_of(cls: type[Any]) -> MessageInfo:
    info = cls.message_info
    assert isinstance(info, MessageInfo)
    return info


def fields_of(cls: type[Any]) -> list[Field]:
    hints = get_type_hints(cls, vars(sys.modules[cls.__module__]), include_extras=True)
    return [
        _field(declared, hints[declared.name]) for declared in cls.declared_fields if declared.name != "unknown_tags"
    ]


def _field(declared: "Declared[Any]", hint: Any) -> Field:
    markers: list[Any] = []
    optional = False
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *annotations = get_args(hint)
            markers += annotations
        elif origin in {Union, UnionType} and NoneType in get_args(hint) and Kind.RECORDS not in markers:
            optional = True
            hint = Union[tuple(arg for arg in get_args(hint) if arg is not NoneType)]  # noqa: UP007 - from a tuple
        else:
            break
    is_array = get_origin(hint) is list and Kind.RECORDS not in markers
    element = hint
    if is_array:
        (element,) = get_args(hint)
        if get_origin(element) is Annotated:
            element, *annotations = get_args(element)
            markers += annotations
    kind = next((marker for marker in markers if isinstance(marker, Kind)), None)
    optional = optional or kind is Kind.RECORDS
    first = _number(markers, Since, 0)
    tagged = next((marker for marker in markers if isinstance(marker, Tag)), None)
    flags = {marker.name for marker in markers if isinstance(marker, Flag)}
    entity = next((marker.name for marker in markers if isinstance(marker, Entity)), None)
    return Field(
        name=declared.name,
        kind=kind,
        struct=None if kind else element,
        is_array=is_array,
        since=first,
        until=_number(markers, Until, NEVER),
        nullable_since=_number(markers, NullableSince, first) if optional else NEVER,
        nullable_until=_number(markers, NullableUntil, NEVER) if optional else -1,
        tag=None if tagged is None else tagged.number,
        tagged_since=NEVER if tagged is None else (first if tagged.since is None else tagged.since),
        ignorable="ignorable" in flags,
        flexible="not_flexible" not in flags,
        entity=entity,
        default=_default(declared, kind, element, is_array),
    )


def _number(markers: list[Any], marker: type[Any], otherwise: int) -> int:
    return next((versioned.version for versioned in markers if isinstance(versioned, marker)), otherwise)


def _default(declared: "Declared[Any]", kind: Kind | None, element: Any, is_array: bool) -> Any:
    if declared.default is not MISSING:
        return declared.default
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    if is_array:
        return []
    if kind is None:
        return element()
    return _IMPLICIT.get(kind, 0)
