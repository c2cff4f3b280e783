"""`App.queue`: a handler that takes the records of a share group.

Here: declaring it, `Reject`, immediate refusals.
Not here: running it (`busway.app.queues`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from busway.app.calling.binding import refusal
from busway.app.calling.layers import binder
from busway.app.model.retry import Retry
from busway.app.model.topic import BadDeclaration, ConsumerRecord, Route, Topic

F = TypeVar("F", bound=Callable[..., Any])


class Reject(Exception):
    """Raised by the handler of a queue to dead-letter a record without another attempt."""


class Declared(Protocol):
    """Declarations of an app, as seen by its queues; new handlers are appended to `queue_routes`."""

    @property
    def name(self) -> str:
        """The app's name."""

    @property
    def group_id(self) -> str:
        """The consumer group."""

    @property
    def topics(self) -> Mapping[str, Topic[Any, Any]]:
        """Its topics, by name."""

    @property
    def queue_routes(self) -> list[Route]:
        """The handlers of its queues."""


def queue(
    app: Declared,
    topics: Sequence[Topic[Any, Any] | str],
    *,
    group: str | None,
    concurrency: int,
    retry: Retry | None,
    dead_letter: bool,
    where: Callable[[ConsumerRecord[Any, Any]], bool] | None,
    timeout_s: float | None,
    check: Callable[[Route], None],
) -> Callable[[F], F]:
    """Return the decorator of `App.queue`; `check` refuses illegal routes."""

    def decorate(function: F) -> F:
        queued: list[Topic[Any, Any]] = []
        for topic in topics:
            declared = app.topics.get(topic) if isinstance(topic, str) else topic
            if declared is None:
                raise refusal(
                    function, f"queues {topic!r}, which is no topic of app {app.name}; declare it: app.topic(…)"
                )
            queued.append(declared)
        name = f"{app.group_id}.queue" if group is None else group
        if not name or name == app.group_id:
            raise refusal(
                function,
                f"group is a name that is not empty and not {app.group_id!r}, the app's own, not {group!r:.80}",
            )
        tries = retry or Retry()
        if not isinstance(tries, Retry):
            raise refusal(function, f"retry is a Retry(attempts=…), not {retry!r:.80}")
        for other in app.queue_routes:
            both = {topic.name for topic in queued} & {topic.name for topic in other.topics}
            if other.group == name and both:
                raise refusal(
                    function,
                    f"takes {', '.join(sorted(both))} of share group {name}, and so does {other.name}: each record would go to one of "
                    "the two; give one of them another group",
                )
        route = Route(
            function=function,
            topics=tuple(queued),
            retry=replace(tries, give_up_on=(*tries.give_up_on, Reject)),
            dead_letter=dead_letter,
            ordering="none",
            concurrency=concurrency,
            where=where,
            timeout_s=timeout_s,
            group=name,
        )
        check(route)
        binder(route).bind(function)
        app.queue_routes.append(route)
        return function

    for given in topics:
        topic: Any = given
        if not isinstance(topic, Topic | str):
            if callable(topic):
                raise refusal(topic, "stands under a bare queue; write @app.queue(topic)")
            raise BadDeclaration(f"queue of app {app.name} takes what app.topic(…) returned, not {topic!r:.80}")
    return decorate
