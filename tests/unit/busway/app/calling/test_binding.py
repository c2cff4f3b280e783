"""A handler's signature: which parameter gets what, and what is refused with file and line."""

import dataclasses
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any

import pytest

from busway import App, BadDeclaration, Batch, ConsumerRecord, Context, Depends, Precision, Topic
from busway.app.calling.binding import Binder
from busway.app.calling.depends import Shared


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
    await Binder(topics=topics or (ratings,), shared=Shared(app)).bind(function).call(RECORD)
    return got


seen: list[list[Any]] = []


def note(*values: Any) -> None:
    seen[-1].extend(values)


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


async def no_annotation(rating: "list[") -> None: ...  # type: ignore[valid-type]  # noqa: F722 - on purpose


async def depends_on_nothing(rating: Rating, again: Any = Depends) -> None: ...


async def two_values(rating: Rating, again: Rating) -> None: ...


class Unbound:
    async def handle(self, rating: Rating) -> None: ...

    async def nothing(self) -> None: ...


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (wrong_type, r"wrong_type: parameter rating is annotated int, the value of ratings is Rating"),
    (second, r"second: parameter watch: Watch cannot be filled; the value is taken already, others are key"),
    (packed, r"packed: \*ratings: .*Rating.* cannot be bound"),
    (named, r"named: \*\*parts: .*Any cannot be bound"),
    (positional, r"positional: rating: .*Rating.* cannot be bound"),
    (generator, r"generator: has a yield"),
    (plain_generator, r"plain_generator: has a yield"),
    (unresolved, r"unresolved: name 'Missing' is not defined; annotations must be importable"),
    (no_annotation, r"no_annotation: .*'list\['; annotations must be importable"),
    (depends_on_nothing, r"depends_on_nothing: parameter again names no function; write Depends\(function\)"),
    (two_values, r"two_values: parameter again: Rating cannot be filled; the value is taken"),
    (Unbound.handle, r"Unbound.handle: is of a class; give the method of an object"),
    (Unbound.nothing, r"Unbound.nothing: is of a class; give the method of an object"),
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


async def takes_the_second(limit: int = 10, rating: Rating | None = None) -> None:
    note(limit, rating)


async def takes_what_needs_it(limit=10, *, rating: Rating) -> None:  # type: ignore[no-untyped-def]
    note(limit, rating)


async def rate(who, rating: Rating) -> None:  # type: ignore[no-untyped-def]
    note(who, rating)


def most(limit=10) -> int:  # type: ignore[no-untyped-def]
    return int(limit)


def stars_of(rating: Rating | None = None) -> int:
    return rating.stars if rating is not None else 0


async def depends(rating: Rating, limit: int = Depends(most), stars: int = Depends(stars_of)) -> None:
    note(limit, stars)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (takes_the_second, [10, Rating(1)]),
        (takes_what_needs_it, [10, Rating(1)]),
        (functools.partial(rate, who="me"), ["me", Rating(1)]),
        (depends, [10, 5]),
    ],
    ids=["second", "keyword", "partial", "dependencies"],
)
async def test_a_default_stays_where_the_value_goes_elsewhere(function: Callable[..., Any], got: list[Any]) -> None:
    """The value goes to who needs one; a dependency's `limit=10` is 10, whatever the topic holds."""
    assert await call(function) == got


async def test_annotations_are_compared_without_their_remarks() -> None:
    """What `Annotated` adds for the schema, and None for tombstones, need not be repeated alike."""
    prices: Topic[str, Any] = app.topic("prices", value=Annotated[Decimal, Precision(5, 2)])  # type: ignore[arg-type]
    either: Topic[str, Any] = app.topic("either", value=Rating | Watch)  # type: ignore[arg-type]

    async def price(price: Decimal) -> None: ...

    async def any_of(event: Watch | Rating | None) -> None: ...

    async def one_of(event: Rating) -> None: ...

    Binder(topics=(prices,)).bind(price)
    Binder(topics=(either,)).bind(any_of)
    with pytest.raises(BadDeclaration, match="the value of either is"):
        Binder(topics=(either,)).bind(one_of)


def test_a_handler_of_two_topics_takes_both_types() -> None:
    """One that takes only one of them is refused, with all that is wanted."""
    with pytest.raises(BadDeclaration, match=r"the value of ratings, watches is Rating \| Watch"):
        Binder(topics=(ratings, watches)).bind(takes_value)


# Dependencies, transactions, batches, results


def first(again: str = Depends(lambda: "")) -> str:
    return again


def ring_a(b: Any = Depends(lambda: None)) -> None: ...


def ring_b(a: Any = Depends(ring_a)) -> None: ...


ring_a.__defaults__ = (Depends(ring_b),)


def of_the_app(rating: Rating) -> None: ...


def short_lived() -> None: ...


def long_lived(inner: Any = Depends(short_lived)) -> None: ...


def unbindable(rates: int) -> None: ...


async def asks_ring(rating: Rating, a: Any = Depends(ring_a)) -> None: ...


async def asks_app(rating: Rating, a: Any = Depends(of_the_app, scope="app")) -> None: ...


async def asks_long(rating: Rating, a: Annotated[Any, Depends(long_lived, scope="app")]) -> None: ...


async def asks_unbindable(rating: Rating, a: Annotated[int, Depends(unbindable)]) -> None: ...


async def asks_no_function(rating: Rating, a: Any = Depends(3)) -> None: ...  # type: ignore[arg-type]


async def asks_tx(rating: Rating, tx: Any) -> None: ...


async def asks_tx_first(tx, rating: Rating) -> None: ...  # type: ignore[no-untyped-def]


DEPENDENCIES: list[tuple[Callable[..., Any], Callable[..., Any], str]] = [
    (asks_ring, ring_b, "dependency ring_b: depends on itself: ring_a → ring_b → ring_a"),
    (
        asks_app,
        of_the_app,
        "dependency of_the_app: parameter rating cannot be filled: there is no record when the app starts",
    ),
    (
        asks_long,
        long_lived,
        "dependency long_lived: lives as long as the app and depends on short_lived, which does not",
    ),
    (
        asks_unbindable,
        unbindable,
        "dependency unbindable: parameter rates is annotated int, the value of ratings is Rating",
    ),
    (asks_no_function, asks_no_function, "handler asks_no_function: Depends takes a function, not 3"),
    (asks_tx, asks_tx, "handler asks_tx: parameter tx needs a transaction; give subscribe sql="),
    (asks_tx_first, asks_tx_first, "handler asks_tx_first: parameter tx needs a transaction"),
]


@pytest.mark.parametrize(("function", "at", "why"), DEPENDENCIES, ids=[case[0].__name__ for case in DEPENDENCIES])
def test_a_dependency_that_cannot_be_made_is_refused_with_its_line(
    function: Callable[..., Any], at: Callable[..., Any], why: str
) -> None:
    """The line of the function that must change."""
    line = at.__code__.co_firstlineno
    with pytest.raises(BadDeclaration, match=rf"test_binding\.py:{line}: {why}"):
        Binder(topics=(ratings,)).bind(function)


async def takes_list(batch: list[Rating]) -> None:
    note(batch)


async def takes_sequence(batch: Sequence[Event], partition: int) -> None:
    note(batch, partition)


async def takes_records(batch: list[ConsumerRecord[str, Rating]]) -> None:
    note(batch)


async def takes_bare_list(batch: list) -> None:  # type: ignore[type-arg]
    note(batch)


BATCHES: list[tuple[Callable[..., Any], list[Any]]] = [
    (takes_list, [[VALUE, VALUE]]),
    (takes_sequence, [[VALUE, VALUE], 2]),
    (takes_records, [[RECORD, RECORD]]),
    (takes_bare_list, [[VALUE, VALUE]]),
]


@pytest.mark.parametrize(("function", "got"), BATCHES)
async def test_a_batch_is_a_list_of_values_or_of_records(function: Callable[..., Any], got: list[Any]) -> None:
    """As the annotation says."""
    seen.append([])
    await Binder(topics=(ratings,), batch=True).bind(function).call([RECORD, RECORD])
    assert seen[-1] == got


async def takes_offset(batch: list[Rating], offset: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            takes_value,
            r"parameter rating is annotated Rating, a batch of ratings is list\[Rating\] or list\[ConsumerRecord\]",
        ),
        (takes_record, r"parameter record is annotated .*ConsumerRecord.*, a batch of ratings is list"),
        (
            takes_offset,
            "parameter offset: int cannot be filled; the value is taken already, others are topic, partition",
        ),
    ],
)
def test_a_batch_that_asks_for_one_record_is_refused(function: Callable[..., Any], why: str) -> None:
    """With what a batch is."""
    with pytest.raises(BadDeclaration, match=why):
        Binder(topics=(ratings,), batch=True).bind(function)


def test_context_and_overrides_are_bound() -> None:
    """Without an app there is nothing to fill it with, but it is no mistake."""

    async def handle(rating: Rating, context: Context[Any]) -> None: ...

    assert Binder(topics=(ratings,)).bind(handle).dependencies == ()
    with pytest.raises(BadDeclaration, match="dependency of_the_app"):
        Binder(topics=(ratings,), overrides={short_lived: of_the_app}).bind(
            lambda rating, a=Depends(short_lived, scope="app"): None
        )
    assert Batch().max_records == 500
