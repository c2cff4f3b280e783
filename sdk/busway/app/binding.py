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

_PARTS: Final = ("key", "headers", "topic", "partition", "offset", "timestamp_ms")
_Part = Callable[[ConsumerRecord[Any, Any]], Any]


def bind(
    function: Callable[..., Any], topics: Sequence[Topic[Any, Any]]
) -> Callable[[ConsumerRecord[Any, Any]], Awaitable[Any]]:
    """What passes a record to the handler; a plain function runs in a thread, so that it may block.

    Raises:
        BadDeclaration: a parameter cannot be bound; names file, line and parameter.
    """
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except NameError:
        hints = {}
    parts: dict[str, _Part] = {}
    value_taken = False
    for name, parameter in signature.parameters.items():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise _refusal(function, f"{parameter} cannot be bound; give each parameter a name and a type")
        hint = hints.get(name, parameter.annotation)
        if (typing.get_origin(hint) or hint) is ConsumerRecord:
            parts[name] = lambda record: record
        elif name in _PARTS:
            parts[name] = _attribute(name)
        elif not value_taken and _fits(hint, topics):
            value_taken = True
            parts[name] = _attribute("value")
        elif parameter.default is parameter.empty:
            raise _refusal(function, _why(name, hint, topics, value_taken=value_taken))
    if inspect.iscoroutinefunction(function):
        return lambda record: function(**{name: part(record) for name, part in parts.items()})
    return lambda record: asyncio.to_thread(
        functools.partial(function, **{name: part(record) for name, part in parts.items()})
    )


def _attribute(name: str) -> _Part:
    return lambda record: getattr(record, name)


def _fits(hint: Any, topics: Sequence[Topic[Any, Any]]) -> bool:
    if hint in {inspect.Parameter.empty, Any}:
        return True
    allowed = set(typing.get_args(hint)) | {hint}
    return all(topic.value in allowed for topic in topics)


def _why(name: str, hint: Any, topics: Sequence[Topic[Any, Any]], *, value_taken: bool) -> str:
    shown = getattr(hint, "__name__", str(hint))
    if value_taken:
        return f"parameter {name}: {shown} cannot be filled; the value is taken already, others are {', '.join(_PARTS)}"
    wanted = " | ".join(sorted({getattr(topic.value, "__name__", str(topic.value)) for topic in topics}))
    return f"parameter {name} is annotated {shown}, the value of {', '.join(one.name for one in topics)} is {wanted}"


def _refusal(function: Callable[..., Any], why: str) -> BadDeclaration:
    code = getattr(function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
    return BadDeclaration(f"{where}handler {function.__qualname__}: {why}")
