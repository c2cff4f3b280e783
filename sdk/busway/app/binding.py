"""A handler's signature → how it is called.

What lives here: which parameter gets what, and the refusal, at start, of one that nothing fits. What does not: calling.

| parameter | gets |
|---|---|
| annotated with the topic's value type, or the first one left | the value |
| annotated `ConsumerRecord` | the whole record |
| named `key`, `headers`, `topic`, `partition`, `offset`, `timestamp_ms` | that part of the record |
"""

import asyncio
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from busway.app.routes import BadDeclaration, ConsumerRecord, Topic
from busway.serde.records import is_record, members

_PARTS: Final = ("key", "headers", "topic", "partition", "offset", "timestamp_ms")
_Part = Callable[[ConsumerRecord[Any, Any]], Any]


def bind(
    function: Callable[..., Any], topics: Sequence[Topic[Any, Any]]
) -> Callable[[ConsumerRecord[Any, Any]], Awaitable[Any]]:
    """What passes a record to the handler; a plain function runs in a thread, so that it may block.

    Raises:
        BadDeclaration: a parameter cannot be bound; names file, line and parameter.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _refusal(function, "has a yield, so a call would handle nothing; return instead")
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(_annotated(function))
    except NameError as problem:
        raise _refusal(function, f"{problem}; annotations must be importable at run time") from None
    parts: dict[str, _Part] = {}
    value_taken = False
    for name, parameter in signature.parameters.items():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise _refusal(function, f"{parameter} cannot be bound; give each parameter a name and a type")
        hint = hints.get(name, parameter.annotation)
        if (typing.get_origin(hint) or hint) is ConsumerRecord:
            parts[name] = lambda record: record
        elif name in _PARTS and not (is_record(hint) and _fits(hint, topics)):
            parts[name] = _attribute(name)
        elif not value_taken and _fits(hint, topics):
            value_taken = True
            parts[name] = _attribute("value")
        elif parameter.default is parameter.empty:
            raise _refusal(function, _why(name, hint, topics, value_taken=value_taken))
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - of an object
        return lambda record: function(**{name: part(record) for name, part in parts.items()})
    return lambda record: _in_thread(function, {name: part(record) for name, part in parts.items()})


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    result = await asyncio.to_thread(_no_stop_iteration, function, arguments)
    if inspect.isawaitable(result):
        await result  # a plain function around a coroutine function


def _no_stop_iteration(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as problem:
        # A future cannot hold one: whoever waits for it would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from problem


def _annotated(function: Any) -> Any:
    """Where the annotations of a handler are: on the function, or on what an object or a partial calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _attribute(name: str) -> _Part:
    return lambda record: getattr(record, name)


def _fits(hint: Any, topics: Sequence[Topic[Any, Any]]) -> bool:
    if hint is inspect.Parameter.empty or hint is Any:
        return True
    allowed = [hint, *(members(hint) or ())]
    return all(any(one == topic.value or _is_base(one, topic.value) for one in allowed) for topic in topics)


def _is_base(hint: Any, kind: Any) -> bool:
    return isinstance(hint, type) and isinstance(kind, type) and is_record(kind) and issubclass(kind, hint)


def _why(name: str, hint: Any, topics: Sequence[Topic[Any, Any]], *, value_taken: bool) -> str:
    shown = getattr(hint, "__name__", str(hint))
    if value_taken:
        return f"parameter {name}: {shown} cannot be filled; the value is taken already, others are {', '.join(_PARTS)}"
    wanted = " | ".join(sorted({getattr(topic.value, "__name__", str(topic.value)) for topic in topics}))
    return f"parameter {name} is annotated {shown}, the value of {', '.join(one.name for one in topics)} is {wanted}"


def _refusal(function: Callable[..., Any], why: str) -> BadDeclaration:
    code = getattr(inspect.unwrap(_annotated(function)), "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
    return BadDeclaration(f"{where}handler {name_of(function)}: {why}")


def name_of(function: Any) -> str:
    """A handler in messages; objects and partials have no name of their own."""
    found = getattr(_annotated(function), "__qualname__", None)
    return str(found or type(function).__qualname__)
