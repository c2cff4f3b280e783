"""A handler's signature → its call.

Here: what each parameter gets; refusing, at declaration, parameters that nothing fits.
Not here: creating dependencies (`depends`), layers (`layers`).

| parameter | gets |
|---|---|
| `= Depends(fn)`, or annotated `Annotated[T, Depends(fn)]` | what `fn` returns or yields |
| annotated `Context` | the attempt: app, record, number, lifespan's state, group |
| named `tx`, with `sql=` | the transaction |
| annotated with the topic's value type, or the first one left | the value |
| annotated `ConsumerRecord` | the whole record |
| named `key`, `headers`, `topic`, `partition`, `offset`, `timestamp_ms` | that part of the record |

With `batch=`: `list` or `Sequence` of the value type or of `ConsumerRecord`, `topic`, `partition`. Parameters of a
dependency are bound in the same way.
"""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Final

from busway.app.calling.depends import (
    SCOPES,
    Call,
    Context,
    Dependency,
    DependencyMarker,
    Depends,
    Get,
    Scope,
    Shared,
    closing,
    current,
    filled,
)
from busway.app.model.topic import BadDeclaration, ConsumerRecord, Topic
from busway.serde.records import is_record, members, strip

_PARTS: Final = ("key", "headers", "topic", "partition", "offset", "timestamp_ms")
_BATCH_PARTS: Final = ("topic", "partition")
Parts = Mapping[str, "Get | Dependency"]
Overrides = Mapping[Callable[..., Any], Any]


@dataclass(frozen=True, slots=True)
class Bound:
    call: Callable[[Any], Awaitable[Any]]
    dependencies: tuple[Dependency, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Binding of the parameters of one handler and its dependencies.

    `transaction`: whether there is a `tx`. `group`: of a queue, else None. `shared`: None while handlers are only
    declared. `overrides`: functions or values that replace dependencies.
    """

    topics: Sequence[Topic[Any, Any]]
    batch: bool = False
    transaction: bool = False
    group: str | None = None
    shared: Shared | None = None
    overrides: Overrides | None = None
    scope: Scope = "record"
    inside: tuple[Callable[..., Any], ...] = ()

    def bind(self, function: Callable[..., Any]) -> Bound:
        """Bind a handler; `BadDeclaration` with file, line and parameter if one cannot be bound."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise refusal(function, "has a yield, so a call would handle nothing; return instead")
        parts = self.parts(function)
        dependencies = tuple(part for part in parts.values() if isinstance(part, Dependency))
        if dependencies:
            return Bound(_with_dependencies(function, parts, self.shared), dependencies)
        return Bound(_call(function, typing.cast("Mapping[str, Get]", parts), self.shared), ())

    def parts(self, function: Callable[..., Any]) -> Parts:
        try:
            signature = inspect.signature(function)
            hints = typing.get_type_hints(_annotated(function), include_extras=True)
        except (NameError, SyntaxError) as problem:
            raise self._refusal(function, f"{problem}; annotations must be importable at run time") from None
        except ValueError:
            raise self._refusal(function, "shows no parameters; wrap it in a function that does") from None
        parts: dict[str, Get | Dependency] = {}
        values: dict[str, tuple[inspect.Parameter, Any, Get]] = {}
        for name, parameter in signature.parameters.items():
            if name == "self" and not parts and not values and name not in hints:
                raise self._refusal(
                    function, "is of a class; give the method of an object: subscribe(topic)(service.handle)"
                )
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise self._refusal(function, f"{parameter} cannot be bound; give each parameter a name and a type")
            if parameter.default is Depends:
                raise self._refusal(function, f"parameter {name} names no function; write Depends(function)")
            hint, depends = _marked(hints.get(name, parameter.annotation), parameter.default)
            if depends is not None:
                parts[name] = self._dependency(depends, function)
            elif (get := self._part(name, hint)) is not None:
                parts[name] = get
            elif (get := self._value(name, hint)) is not None:
                values[name] = parameter, hint, get
            elif parameter.default is parameter.empty:
                raise self._refusal(function, self._why(name, hint, value_taken=bool(values)))
        return {**parts, **self._taken(function, values)}

    def _taken(self, function: Callable[..., Any], values: Mapping[str, tuple[inspect.Parameter, Any, Get]]) -> Parts:
        """Choose the value's parameter: the one without a default, else the first.

        A dependency's parameter keeps its default, unless it is annotated with the record's class.
        """
        needy = [name for name, (parameter, _, _) in values.items() if parameter.default is parameter.empty]
        if len(needy) > 1:
            raise self._refusal(function, self._why(needy[1], values[needy[1]][1], value_taken=True))
        may = [name for name, (_, hint, _) in values.items() if not self.inside or _names_a_record(hint)]
        return {name: values[name][2] for name in (needy or may)[:1]}

    def _part(self, name: str, hint: Any) -> Get | None:
        if self.scope == "app":
            return None
        if (typing.get_origin(hint) or hint) is Context:
            return self._context
        if name == "tx" and self.transaction:
            return _tx
        if not self.batch and (typing.get_origin(hint) or hint) is ConsumerRecord:
            return _record
        named = _BATCH_PARTS if self.batch else _PARTS
        if name not in named or (is_record(hint) and self._fits(hint)):
            return None
        get = attrgetter(name)
        return (lambda records: get(records[0])) if self.batch else get

    def _value(self, name: str, hint: Any) -> Get | None:
        plain = hint is inspect.Parameter.empty or hint is Any
        if self.scope == "app" or (name == "tx" and (plain or not self._fits(hint))):
            return None
        if not self.batch:
            return attrgetter("value") if self._fits(hint) else None
        if plain:
            return _values
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin not in {list, Sequence} or len(arguments) != 1:
            return _values if hint in {list, Sequence} else None
        if (typing.get_origin(arguments[0]) or arguments[0]) is ConsumerRecord:
            return _record
        return _values if self._fits(arguments[0]) else None

    def _fits(self, hint: Any) -> bool:
        return fits(hint, self.topics)

    def _context(self, record: Any) -> Context[Any]:
        assert self.shared is not None
        app = self.shared.app
        first = record[0] if self.batch else record
        return Context(
            app=app,
            record=first,
            attempt=current.get().attempt,
            state=self.shared.state,
            group=self.group or app.group_id,
        )

    def _dependency(self, depends: DependencyMarker, of: Callable[..., Any]) -> Dependency:
        fn = depends.fn
        if not callable(fn):
            raise self._refusal(of, f"Depends takes a function, not {fn!r:.80}")
        if depends.scope not in SCOPES:
            raise self._refusal(of, f"the scope of {name_of(fn)} is {' or '.join(SCOPES)}, not {depends.scope!r}")
        if self.scope == "app" and depends.scope != "app":
            raise self._refusal(
                of, f"lives as long as the app and depends on {name_of(fn)}, which does not; give that scope='app' too"
            )
        if fn in self.inside:
            ring = " → ".join(name_of(function) for function in (*self.inside[self.inside.index(fn) :], fn))
            raise self._refusal(of, f"depends on itself: {ring}")
        run = (self.overrides or {}).get(fn, fn)
        if not callable(run):
            return Dependency(fn, lambda: run, depends.scope, {})
        inner = replace(self, scope=depends.scope, inside=(*self.inside, fn))
        return Dependency(fn, run, depends.scope, inner.parts(run))

    def _refusal(self, function: Callable[..., Any], why: str) -> BadDeclaration:
        return refusal(function, why, "dependency" if self.inside else "handler")

    def _why(self, name: str, hint: Any, *, value_taken: bool) -> str:
        shown = _shown(hint)
        if self.scope == "app":
            return (
                f"parameter {name} cannot be filled: there is no record when the app starts; ask for it in the handler"
            )
        if name == "tx":
            return "parameter tx needs a transaction; give subscribe sql=, the database to have it from"
        if value_taken:
            others = ", ".join(_BATCH_PARTS if self.batch else _PARTS)
            return f"parameter {name}: {shown} cannot be filled; the value is taken already, others are {others}"
        value_types = " | ".join(sorted({_shown(topic.value) for topic in self.topics}))
        names = ", ".join(topic.name for topic in self.topics)
        if self.batch:
            return f"parameter {name} is annotated {shown}, a batch of {names} is list[{value_types}] or list[ConsumerRecord]"
        return f"parameter {name} is annotated {shown}, the value of {names} is {value_types}"


def fits(hint: Any, topics: Sequence[Topic[Any, Any]]) -> bool:
    if hint is inspect.Parameter.empty or hint is Any:
        return True
    allowed = [strip(alternative) for alternative in (hint, *(members(hint) or ()))]
    return all(_is_among(allowed, topic.value) for topic in topics)


def _is_among(allowed: Sequence[Any], kind: Any) -> bool:
    kind = strip(kind)
    if any(alternative == kind or _is_base(alternative, kind) for alternative in allowed):
        return True
    parts = members(kind)
    return parts is not None and all(_is_among(allowed, part) for part in parts)


def _names_a_record(hint: Any) -> bool:
    return any(is_record(strip(alternative)) for alternative in (hint, *(members(hint) or ())))


def _is_base(hint: Any, kind: Any) -> bool:
    return isinstance(hint, type) and isinstance(kind, type) and is_record(kind) and hint in kind.__mro__


def _marked(hint: Any, default: Any) -> tuple[Any, DependencyMarker | None]:
    depends = default if isinstance(default, DependencyMarker) else None
    if typing.get_origin(hint) is Annotated:
        hint, *extras = typing.get_args(hint)
        depends = depends or next((extra for extra in extras if isinstance(extra, DependencyMarker)), None)
    return hint, depends


def _record(record: Any) -> Any:
    return record


def _values(records: Sequence[ConsumerRecord[Any, Any]]) -> list[Any]:
    return [record.value for record in records]


def _tx(_: Any) -> Any:
    return current.get().tx


# Calling


def _call(
    function: Callable[..., Any], gets: Mapping[str, Get], shared: Shared | None
) -> Callable[[Any], Awaitable[Any]]:
    if not is_coroutine_function(function):
        return lambda record: _in_thread(function, {name: get(record) for name, get in gets.items()}, shared)
    if len(gets) == 1 and not isinstance(function, functools.partial):
        ((name, get),) = gets.items()
        first = next(iter(inspect.signature(function).parameters.values()))
        if first.name == name and first.kind is not first.KEYWORD_ONLY:
            return lambda record: function(get(record))
    return lambda record: function(**{name: get(record) for name, get in gets.items()})


def _with_dependencies(
    function: Callable[..., Any], parts: Parts, shared: Shared | None
) -> Callable[[Any], Awaitable[Any]]:
    in_loop = is_coroutine_function(function)

    async def work(call: Call) -> Any:
        arguments = await filled(parts, call, shared)
        return await (function(**arguments) if in_loop else _in_thread(function, arguments, shared))

    def begin(record: Any) -> Awaitable[Any]:
        call = Call(record, AsyncExitStack())
        return closing(call.stack, work(call))

    return begin


def is_coroutine_function(function: Any) -> bool:
    """Return whether calling it makes a coroutine; callable objects included."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - of an object


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any], shared: Shared | None) -> Any:
    assert shared is not None, "a handler is called while its app runs"
    result = await shared.threads.run(function, arguments, name=name_of(function))
    if inspect.isawaitable(result):
        return await result  # a plain function around a coroutine function
    return result


# Words


def _annotated(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        return function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def _shown(hint: Any) -> str:
    return str(hint) if typing.get_args(hint) else getattr(hint, "__name__", str(hint))


def refusal(function: Callable[..., Any], why: str, what: str = "handler") -> BadDeclaration:
    code = getattr(inspect.unwrap(_annotated(function)), "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
    return BadDeclaration(f"{where}{what} {name_of(function)}: {why}")


def name_of(function: Any) -> str:
    """Return a handler's name; objects and partials have no `__qualname__`."""
    qualname = getattr(function if inspect.isclass(function) else _annotated(function), "__qualname__", None)
    return str(qualname or type(function).__qualname__)
