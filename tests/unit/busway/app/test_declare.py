"""Topics and handlers that cannot work are refused when they are declared."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from busway import App, BadDeclaration, NotRunning


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
    ("no topic", lambda app: app.subscribe()(handle), "handler handle names no topic"),
    ("not called", lambda app: app.subscribe(handle)(handle), "handler handle names no topic"),  # type: ignore[arg-type]
    ("of another app", lambda app: app.subscribe(App("b").topic("t", value=Rating))(handle), "of app a"),
    ("dead letters", lambda app: app.subscribe(app.topic("x" * 245, value=Rating))(handle), "choose another group_id"),
    ("own commits", lambda _: App("b", consumer={"enable_auto_commit": True}), "commits are the app's own work"),
    ("own group", lambda _: App("b", consumer={"group_id": "g"}), "arguments of App"),
]


@pytest.mark.parametrize(("name", "declare", "why"), REFUSED, ids=[one[0] for one in REFUSED])
def test_what_cannot_work_is_refused(name: str, declare: Callable[[App], Any], why: str) -> None:
    """With the name of the topic or the handler, and what to change."""
    with pytest.raises(BadDeclaration, match=why):
        declare(App("a"))


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
