"""A handler and the layers around its call.

Here: from the inside: the bound function, sending its result, the transaction, extensions.
Not here: retries (`attempts`), order (`schedule`).

A transaction commits only when all sends of the handler are acknowledged: a record marked as handled is not handled
again, so its sends would be lost.
"""

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from busway.app.calling.binding import Binder, Bound, fits, refusal
from busway.app.calling.depends import Call, Shared, current
from busway.app.extending.hooks import Hooks
from busway.app.model.topic import Publication, Route, Topic, TransactionalInbox
from busway.app.service import RunningService
from busway.serde.records import members

unacknowledged: ContextVar[list["asyncio.Future[Any]"] | None] = ContextVar("unacknowledged", default=None)
"""Sends that the handler did not await; its record is finished when all are acknowledged."""


async def acknowledged(sent: Collection["asyncio.Future[Any]"]) -> None:
    """Wait for all acknowledgements; raise the first error. Cancelling it leaves the shared futures."""
    if sent:
        await asyncio.wait(sent)
        for future in sent:
            future.result()


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A route of a running app; `call` takes a record, or the list of a batch."""

    route: Route
    call: Callable[[Any], Awaitable[Any]]


async def prepare(app: RunningService, state: Any, hooks: Hooks, stack: AsyncExitStack) -> list[Handler]:
    """Return the handlers of a starting app; the stack closes dependencies of scope "app".

    Raises:
        BadDeclaration: a result does not fit its topic, or a replaced dependency cannot be bound.
        ExtensionFailed: an extension could not wrap a handler.
    """
    shared = Shared(app, state)
    stack.callback(shared.threads.close)
    handlers = []
    for route in (*app.routes, *app.queue_routes):
        bound = binder(route, shared).bind(route.function)
        for dependency in (part for outer in bound.dependencies for part in outer.parts()):
            if dependency.scope == "app" and dependency.fn not in shared.values:
                shared.values[dependency.fn] = await dependency.make(Call(None, stack), shared)
        handlers.append(Handler(route, hooks.around(route, layers(route, bound, app))))
    return handlers


def binder(route: Route, shared: Shared | None = None) -> Binder:
    return Binder(
        topics=route.topics,
        batch=route.batch is not None,
        transaction=route.sql is not None,
        group=route.group,
        shared=shared,
        overrides=None if shared is None else shared.app.overrides,
    )


def layers(route: Route, bound: Bound, app: RunningService) -> Callable[[Any], Awaitable[Any]]:
    call = bound.call
    for publication in route.publications:
        call = _publishing(call, route, publication, app)
    return call if route.sql is None else _transacting(call, route.sql, app.group_id)


def _transacting(
    call: Callable[[Any], Awaitable[Any]], inbox: TransactionalInbox, group: str
) -> Callable[[Any], Awaitable[Any]]:
    async def transact(record: Any) -> Any:
        async with inbox.handling(group, record) as tx:
            if tx is None:
                return None
            current.get().tx = tx
            result = await call(record)
            await acknowledged(unacknowledged.get() or ())
            return result

    return transact


def _publishing(
    call: Callable[[Any], Awaitable[Any]], route: Route, publication: Publication, app: RunningService
) -> Callable[[Any], Awaitable[Any]]:
    topic = _target(route, publication, app)
    spread = topic.value is not list and typing.get_origin(topic.value) is not list
    own_key = publication.key

    async def publish(record: Any) -> Any:
        result = await call(record)
        if result is None:
            return None
        values: Sequence[Any] = result if spread and isinstance(result, list) else [result]
        for value in values:
            key = own_key(value) if own_key is not None else None if route.batch else record.key
            await app.send_result(topic, value, key)
        return result

    return publish


def _target(route: Route, publication: Publication, app: RunningService) -> Topic[Any, Any]:
    topic = publication.topic
    if isinstance(topic, str):
        if topic not in app.topics:
            raise refusal(
                route.function, f"publishes to {topic!r}, which is no topic of app {app.name}; declare it: app.topic(…)"
            )
        topic = app.topics[topic]
    if topic.read_only:
        raise refusal(route.function, f"publishes to {topic.name}, which is read_only in app {app.name}")
    if publication.key is None and not route.batch:
        for source in route.topics:
            if source.key != topic.key:
                raise refusal(
                    route.function,
                    f"publishes to {topic.name}, whose key is {name_of_type(topic.key)}, with the key of {source.name}, which is "
                    f"{name_of_type(source.key)}; say which: publish({topic.name!r}, key=lambda result: …)",
                )
    if not _may_return(route.function, topic):
        raise refusal(
            route.function,
            f"publishes to {topic.name}, whose value is {name_of_type(topic.value)}, and its return annotation is another; change one",
        )
    return topic


def name_of_type(kind: Any) -> str:
    return str(kind) if typing.get_args(kind) else getattr(kind, "__name__", str(kind))


def _may_return(function: Callable[..., Any], topic: Topic[Any, Any]) -> bool:
    target = function if inspect.isroutine(function) else getattr(type(function), "__call__", function)  # noqa: B004 - of an object
    try:
        hint = typing.get_type_hints(target).get("return", Any)
    except (NameError, TypeError):
        return True
    hint = Any if hint is None else hint
    return all(_is_value(member, topic) for member in (members(hint) or (hint,)) if member is not type(None))


def _is_value(hint: Any, topic: Topic[Any, Any]) -> bool:
    if fits(hint, [topic]) or (
        isinstance(hint, type) and isinstance(topic.value, type) and issubclass(hint, topic.value)
    ):
        return True
    if typing.get_origin(hint) is not list:
        return hint is list
    return all(_is_value(item, topic) for item in typing.get_args(hint))
