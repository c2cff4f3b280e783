"""Topics and handlers that cannot work are refused when they are declared."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from busway import App, BadDeclaration, Batch, NotRunning
from busway.app.calling.layers import binder, layers
from busway.app.declaring.lifespan import entered


@dataclasses.dataclass
class Rating:
    stars: int


@dataclasses.dataclass
class Other:
    stars: int


async def handle(rating: Rating) -> None: ...


def twice(**changed: Any) -> Callable[[App], Any]:
    first: dict[str, Any] = {"value": Rating, "partitions": 3, "configs": {"cleanup.policy": "compact"}}

    def declare(app: App) -> None:
        app.topic("ratings", **first)
        app.topic("ratings", **{**first, **changed})

    return declare


async def takes_batch(ratings: list[Rating]) -> None: ...


class Inbox:
    """Never asked."""

    def handling(self, group: str, record: Any) -> Any: ...


def ratings(app: App) -> Any:
    return app.topic("ratings", value=Rating)


def on(app: App, function: Any = handle, **options: Any) -> Any:
    return app.subscribe(ratings(app), **options)(function)


REFUSED: list[tuple[str, Callable[[App], Any], str]] = [
    ("no name", lambda app: app.topic("", value=Rating), "is no name for a topic"),
    ("slash", lambda app: app.topic("a/b", value=Rating), "'a/b' is no name for a topic"),
    ("dots", lambda app: app.topic("..", value=Rating), "is no name for a topic"),
    ("long", lambda app: app.topic("x" * 250, value=Rating), "at most 249"),
    ("format", lambda app: app.topic("t", value=Rating, format="xml"), "format is avro, json, raw, not 'xml'"),  # type: ignore[call-overload]
    ("another value", twice(value=Other), "declared before with other types"),
    ("another key", twice(key=int), "declared before with other types"),
    ("another key format", twice(key_format="json"), "declared before with other types"),
    ("another format", twice(format="json"), "declared before with other types"),
    ("other partitions", twice(partitions=4), "declared before with other settings"),
    ("other configs", twice(configs={"retention.ms": "1"}), "declared before with other settings"),
    ("no topic", lambda app: app.subscribe()(handle), "handler handle: subscribe names no topic"),
    ("not called", lambda app: app.subscribe(handle), r"handle: .*bare subscribe; write @app.subscribe\(topic\)"),  # type: ignore[arg-type]
    ("by name", lambda app: app.subscribe("ratings"), r"takes what app.topic\(…\) returned, not 'ratings'"),  # type: ignore[arg-type]
    ("no function", lambda app: app.subscribe(ratings(app))(3), "cannot subscribe 3, which is no function"),  # type: ignore[type-var]
    ("publish not called", lambda app: app.publish(handle), r"write @app.publish\(topic\)"),  # type: ignore[arg-type]
    ("retry", lambda app: on(app, retry=3), r"retry is a Retry\(attempts=…\), not 3"),
    ("where", lambda app: on(app, where=handle), "where is a plain function"),
    ("batch", lambda app: on(app, takes_batch, batch=10), r"batch is a Batch\(max_records=…\), not 10"),
    ("sql", lambda app: on(app, sql="sqlite://"), r"sql is a Sql\(engine\), not 'sqlite://'"),
    ("numbers", lambda app: on(app, concurrency="4"), "concurrency and timeout_s are numbers"),
    ("assigned", lambda app: app.on_assigned(lambda partitions: None), "on_assigned waits for it"),  # type: ignore[arg-type]
    ("raw", lambda app: app.topic("t", value=str, format="raw"), "so value=bytes"),
    ("no partitions", lambda app: app.topic("t", value=Rating, partitions=0), "partitions is 1 or more, not 0"),
    ("settings", lambda app: app.topic("t", value=Rating, configs={"a": 5}), "configs are strings, a=5 is not"),  # type: ignore[dict-item]
    ("an option", lambda _: App("b", producer={"linger": 3}), "app b: linger is no option"),
    ("a bad option", lambda _: App("b", consumer={"max_poll_records": 0}), "app b: max_poll_records: 0"),
    ("of another app", lambda app: app.subscribe(App("b").topic("t", value=Rating))(handle), "of app a"),
    ("dead letters", lambda app: app.subscribe(app.topic("x" * 245, value=Rating))(handle), "choose another group_id"),
    ("ordering", lambda app: on(app, ordering="time"), "handler handle: ordering is key, partition, none, not 'time'"),
    ("concurrency", lambda app: on(app, concurrency=0), "test_declarations.py:.*concurrency is 1 to 1000, not 0"),
    ("strict and concurrent", lambda app: on(app, concurrency=2, ordering="partition"), "choose ordering='key'"),
    ("batch and concurrent", lambda app: on(app, takes_batch, concurrency=2, batch=Batch()), "concurrency stays 1"),
    ("batch and sql", lambda app: on(app, takes_batch, sql=Inbox(), batch=Batch()), "leave batch out"),
    ("no time", lambda app: on(app, timeout_s=0), "timeout_s is above 0, not 0"),
    ("no room", lambda app: Batch(max_records=1001), "max_records is 1 to 1000"),
    (
        "publish below",
        lambda app: app.subscribe(ratings(app))(app.publish("t")(handle)),
        "put publish above the subscribe",
    ),
    ("publish elsewhere", lambda app: app.publish(App("b").topic("t", value=Rating))(handle), "no topic of app a"),
    ("own commits", lambda _: App("b", consumer={"enable_auto_commit": True}), "commits are the app's own work"),
    ("own group", lambda _: App("b", consumer={"group_id": "g"}), "arguments of App"),
]


@pytest.mark.parametrize(("name", "declare", "why"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_cannot_work_is_refused(name: str, declare: Callable[[App], Any], why: str) -> None:
    """With the name of the topic or the handler, and what to change."""
    with pytest.raises(BadDeclaration, match=why):
        declare(App("a"))


async def no_yield(app: App) -> None: ...


def asks_nothing() -> Any:
    yield


def plain_generator(app: App) -> Any:
    yield


@pytest.mark.parametrize(
    ("lifespan", "why"),
    [
        (no_yield, "yields once or returns an async context manager; it returned coroutine"),
        (asks_nothing, "takes the app, .*: too many positional arguments"),
        (plain_generator, "it returned generator"),
    ],
)
def test_what_is_no_lifespan_is_refused_with_its_line(lifespan: Any, why: str) -> None:
    """When the app starts."""
    line = lifespan.__code__.co_firstlineno
    with pytest.raises(BadDeclaration, match=rf"test_declarations\.py:{line}: lifespan {lifespan.__name__}: .*{why}"):
        entered(lifespan, App("a"))


def test_the_same_declaration_again_is_the_same_topic() -> None:
    """Two modules may both say what they read; who leaves the settings out takes those that are there."""
    app = App("a")
    first = app.topic("ratings", value=Rating, partitions=3, configs={"retention.ms": "1"})
    assert app.topic("ratings", value=Rating, partitions=3, configs={"retention.ms": "1"}) is first
    assert app.topic("ratings", value=Rating) is first
    app.subscribe(first)(handle)
    assert app.routes[0].name == f"{__name__}.handle"


async def test_an_app_that_does_not_run_sends_and_waits_for_nothing() -> None:
    """It says so, instead of hanging."""
    app = App("a")
    topic = app.topic("ratings", value=Rating)
    for work in (topic.send(Rating(1)), topic.send_soon(Rating(1)), app.wait()):
        with pytest.raises(NotRunning, match="app a"):
            await work
    await app.stop()


async def returns_rating(rating: Rating) -> Rating | None: ...


async def returns_list(rating: Rating) -> list[Rating]: ...


async def returns_other(rating: Rating) -> Other: ...


async def returns_text(rating: Rating) -> list[str]: ...


async def returns_what_it_wants(rating: Rating) -> Any: ...


@pytest.mark.parametrize(
    ("function", "topic", "why"),
    [
        (returns_rating, "out", None),
        (returns_list, "out", None),
        (returns_what_it_wants, "out", None),
        (handle, "out", None),
        (returns_other, "out", "publishes to out, whose value is Rating, and its return annotation is another"),
        (returns_text, "out", "its return annotation is another"),
        (returns_rating, "nowhere", "publishes to 'nowhere', which is no topic of app a; declare it"),
        (returns_rating, "numbered", "whose key is int, with the key of ratings, which is str; say which: publish"),
    ],
)
def test_a_result_that_cannot_go_where_it_is_published_is_refused(function: Any, topic: str, why: str | None) -> None:
    """When the app starts: topics may be declared after handlers."""
    app = App("a")
    app.publish(topic)(on(app, function))
    app.topic("out", value=Rating)
    app.topic("numbered", key=int, value=Rating)
    (route,) = app.routes
    if why is None:
        layers(route, binder(route).bind(route.function), app)
        return
    with pytest.raises(BadDeclaration, match=rf"test_declarations\.py:\d+: handler {function.__name__}: .*{why}"):
        layers(route, binder(route).bind(route.function), app)
