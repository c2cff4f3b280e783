"""A handler's signature: which parameter gets what, and what is refused with file and line."""

import dataclasses
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from busway import App, BadDeclaration, ConsumerRecord, Topic
from busway.app.binding import Binder


@dataclasses.dataclass
class Event:
    id: int


@dataclasses.dataclass
class Rating(Event):
    stars: int = 5


@dataclasses.dataclass
class Watch:
    title: str


app = App("shop")
ratings = app.topic("ratings", value=Rating)
watches = app.topic("watches", value=Watch)
RECORD: ConsumerRecord[str, Rating] = ConsumerRecord(
    topic="ratings", partition=2, offset=7, timestamp_ms=99, key="k", value=Rating(1), headers=(("h", b"1"),)
)


async def call(function: Callable[..., Any], *topics: Topic[Any, Any]) -> Any:
    """What the handler appended to the list that it returns."""
    got: list[Any] = []
    seen.append(got)
    await Binder(topics=topics or (ratings,)).bind(function).call(RECORD)
    return got


seen: list[list[Any]] = []


def note(*found: Any) -> None:
    seen[-1].extend(found)


async def takes_value(rating: Rating) -> None:
    note(rating)


async def takes_optional(rating: Rating | None) -> None:
    note(rating)


async def takes_base(event: Event) -> None:
    note(event)


async def takes_object(event: object) -> None:
    note(event)


async def takes_untyped(rating) -> None:  # type: ignore[no-untyped-def]
    note(rating)


async def takes_any(rating: Any) -> None:
    note(rating)


async def takes_text(rating: "Rating") -> None:
    note(rating)


async def takes_record(record: ConsumerRecord[str, Rating]) -> None:
    note(record)


async def takes_bare_record(record: ConsumerRecord) -> None:  # type: ignore[type-arg]
    note(record)


async def takes_parts(
    offset: int, rating: Rating, key: str, headers: Any, topic: str, partition: int, timestamp_ms: int
) -> None:
    note(offset, rating, key, headers, topic, partition, timestamp_ms)


async def takes_value_called_topic(topic: Rating) -> None:
    note(topic)


async def takes_keyword_only(*, rating: Rating, key: str | None = None) -> None:
    note(rating, key)


async def takes_default(rating: Rating, limit: int = 3) -> None:
    note(rating, limit)


async def takes_nothing() -> None:
    note("called")


async def takes_union(value: Rating | Watch) -> None:
    note(value)


VALUE = RECORD.value
BOUND: list[tuple[Callable[..., Any], list[Any]]] = [
    (takes_value, [VALUE]),
    (takes_optional, [VALUE]),
    (takes_base, [VALUE]),
    (takes_object, [VALUE]),
    (takes_untyped, [VALUE]),
    (takes_any, [VALUE]),
    (takes_text, [VALUE]),
    (takes_record, [RECORD]),
    (takes_bare_record, [RECORD]),
    (takes_parts, [7, VALUE, "k", (("h", b"1"),), "ratings", 2, 99]),
    (takes_value_called_topic, [VALUE]),
    (takes_keyword_only, [VALUE, "k"]),
    (takes_default, [VALUE, 3]),
    (takes_nothing, ["called"]),
    (functools.partial(takes_default, limit=9), [VALUE, 9]),
]


@pytest.mark.parametrize(("function", "got"), BOUND)
async def test_each_parameter_gets_its_part(function: Callable[..., Any], got: list[Any]) -> None:
    """Row by row of the table in the module."""
    assert await call(function) == got


async def test_one_handler_for_two_topics() -> None:
    """Its annotation holds both types."""
    assert await call(takes_union, ratings, watches) == [VALUE]


class Service:
    async def handle(self, rating: Rating) -> None:
        note(rating)

    async def __call__(self, rating: Rating) -> None:
        note("object", rating)


class Blocking:
    def __call__(self, rating: Rating) -> None:
        note(threading.current_thread() is threading.main_thread(), rating)


async def test_methods_objects_and_wrappers_are_handlers() -> None:
    """A coroutine is awaited wherever it comes from; nothing counts as handled that was never run."""

    @functools.wraps(takes_value)
    def wrapped(rating: Rating) -> Any:
        return takes_value(rating)

    assert await call(Service().handle) == [VALUE]
    assert await call(Service()) == ["object", VALUE]
    assert await call(Blocking()) == [False, VALUE]
    assert await call(wrapped) == [VALUE]


async def test_a_plain_function_runs_in_a_thread_and_may_raise_anything() -> None:
    """StopIteration too, which no future can hold."""

    def stop(rating: Rating) -> None:
        note(threading.current_thread() is threading.main_thread())
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await call(stop)
    assert seen[-1] == [False]


async def wrong_type(rating: int) -> None: ...


async def second(rating: Rating, watch: Watch) -> None: ...


async def packed(*ratings: Rating) -> None: ...


async def named(**parts: Any) -> None: ...


async def positional(rating: Rating, /) -> None: ...


async def generator(rating: Rating) -> AsyncIterator[int]:
    yield 1


def plain_generator(rating: Rating) -> Iterator[int]:
    yield 1


async def unresolved(rating: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - on purpose


class Unbound:
    async def handle(self, rating: Rating) -> None: ...


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (wrong_type, r"wrong_type: parameter rating is annotated int, the value of ratings is Rating"),
    (second, r"second: parameter watch: Watch cannot be filled; the value is taken already, others are key"),
    (packed, r"packed: \*ratings: .*Rating.* cannot be bound"),
    (named, r"named: \*\*parts: .*Any cannot be bound"),
    (positional, r"positional: rating: .*Rating.* cannot be bound"),
    (generator, r"generator: has a yield"),
    (plain_generator, r"plain_generator: has a yield"),
    (unresolved, r"unresolved: name 'Missing' is not defined; annotations must be importable"),
    (Unbound.handle, r"Unbound.handle: parameter rating: Rating cannot be filled; the value is taken"),
    (functools.partial(second), r"second: parameter watch"),
]


@pytest.mark.parametrize(("function", "why"), REFUSED, ids=[why[:12] for _, why in REFUSED])
def test_a_parameter_that_nothing_fits_is_refused_with_its_line(function: Callable[..., Any], why: str) -> None:
    """When the handler is declared, not when the first record comes."""
    line = (
        function.func.__code__.co_firstlineno
        if isinstance(function, functools.partial)
        else function.__code__.co_firstlineno
    )
    with pytest.raises(BadDeclaration, match=rf"test_binding\.py:{line}: handler {why}"):
        Binder(topics=(ratings,)).bind(function)


def test_a_handler_of_two_topics_takes_both_types() -> None:
    """One that takes only one of them is refused, with all that is wanted."""
    with pytest.raises(BadDeclaration, match=r"the value of ratings, watches is Rating \| Watch"):
        Binder(topics=(ratings, watches)).bind(takes_value)
