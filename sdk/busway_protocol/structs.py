"""Classes of messages: slots, with `__init__` and `__eq__` compiled on first use.

Here: an equivalent of `dataclass(slots=True, kw_only=True)` in a seventh of its import time: that compiles three
functions per class.
Not here: the meaning of fields (`schema`).
"""

import dataclasses
from dataclasses import MISSING
from typing import Any, TypeVar, cast

T = TypeVar("T")
Declared = dataclasses.Field


class Struct:
    """Base of all structures: equal by fields; `repr` omits unknown tagged fields."""

    __slots__ = ()
    declared_fields = cast("tuple[Declared[Any], ...]", ())  # not annotated: annotations are wire fields
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compiled_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        cls.__eq__ = _compiled_eq(cls)  # type: ignore[method-assign]
        return cls.__eq__(self, other)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{declared.name}={getattr(self, declared.name)!r}" for declared in self.declared_fields if declared.repr
        )
        return f"{self.__class__.__qualname__}({shown})"


def struct_class(cls: type[T]) -> type[T]:
    """Make annotated names slots and keyword arguments; values, or `dataclasses.field`, are defaults."""
    names = tuple(cls.__annotations__)
    fields = []
    for name in names:
        given = vars(cls).get(name, MISSING)
        made: Declared[Any] = given if isinstance(given, Declared) else dataclasses.field(default=given)
        assert type(made.default).__hash__ is not None, f"{cls.__name__}.{name}: one default would be shared by all"
        made.name = name
        fields.append(made)
    body = {name: value for name, value in vars(cls).items() if name not in {*names, "__dict__", "__weakref__"}}
    body.update(__slots__=names, declared_fields=tuple(fields), __qualname__=cls.__qualname__)
    generated: Any = type(cls.__name__, (Struct,), body)
    slotted: type[T] = generated
    return slotted


def _compiled_init(cls: type[Struct]) -> Any:
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for declared in cls.declared_fields:
        value = declared.name
        if declared.default_factory is not MISSING:
            scope[f"new_{declared.name}"] = declared.default_factory
            parameters.append(f"{declared.name}=MISSING")
            value = f"new_{declared.name}() if {declared.name} is MISSING else {declared.name}"
        elif declared.default is not MISSING:
            scope[f"default_{declared.name}"] = declared.default
            parameters.append(f"{declared.name}=default_{declared.name}")
        else:
            parameters.append(declared.name)
        lines.append(f"    self.{declared.name} = {value}")
    text = "\n".join([f"def __init__(self, *, {', '.join(parameters)}):", *lines])
    exec(text, scope)  # noqa: S102 - source generated from class definitions, never from input
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _compiled_eq(cls: type[Struct]) -> Any:
    scope: dict[str, Any] = {}
    equal = " and ".join(f"self.{declared.name} == other.{declared.name}" for declared in cls.declared_fields) or "True"
    text = f"def __eq__(self, other):\n    return {equal} if other.__class__ is self.__class__ else NotImplemented"
    exec(text, scope)  # noqa: S102 - source generated from class definitions, never from input
    made = scope["__eq__"]
    made.__qualname__ = f"{cls.__qualname__}.__eq__"
    return made
