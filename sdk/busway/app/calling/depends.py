"""Handler arguments besides the record: `Depends(fn)` and `Context`.

Here: both; calling, caching and closing dependencies.
Not here: matching parameters (`binding`).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from busway.app.model.topic import ConsumerRecord
from busway.app.service import RunningService
from busway.app.threads import Threads
from busway.net.clock import APP_TIME

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    S = TypeVarWithDefault("S", default=Any)  # a handler that does not use the state need not name its type
else:
    S = TypeVar("S")

Scope: TypeAlias = Literal["record", "app"]
SCOPES: Final[tuple[Scope, ...]] = ("record", "app")


@dataclass(frozen=True, slots=True)
class DependencyMarker:
    """The marker that `Depends` returns."""

    fn: Callable[..., Any]
    scope: Scope


def Depends(fn: Callable[..., Any], scope: Scope = "record") -> Any:  # noqa: N802 - reads as the mark that it is; returns Any, because it stands as the default of a parameter of any type
    """Mark a parameter that gets what `fn` returns.

    `rates: Rates = Depends(open_rates)` or `rates: Annotated[Rates, Depends(open_rates)]`.

    Args:
        fn: a plain or coroutine function, called in the event loop, or a generator of either kind that yields once. A
            generator is closed after the record; a handler's exception is raised at its `yield`. Parameters are bound
            like a handler's and may be dependencies. It is called once per attempt, however many parameters use it.
        scope: "app" calls it when the app starts, without a record, and closes it when the app stops.
    """
    return DependencyMarker(fn, scope)


@dataclass(slots=True, kw_only=True)
class Context(Generic[S]):
    """The current call of a handler.

    Attributes:
        record: a batch's first.
        attempt: 1 for the first.
        state: yielded by the app's lifespan; None without one.
        group: the consumer or share group.
    """

    app: RunningService
    record: ConsumerRecord[Any, Any]
    attempt: int
    state: S
    group: str


@dataclass(slots=True)
class Current:
    """The current attempt of a task; `key` is raw, and None in a batch."""

    key: bytes | None = None
    attempt: int = 1
    tx: Any = None
    deadline: asyncio.Timeout | None = None

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Suspend the handler's deadline."""
        deadline = self.deadline
        if deadline is None or (end := deadline.when()) is None:
            yield
            return
        left_s = end - APP_TIME.now_s()
        deadline.reschedule(None)
        yield
        deadline.reschedule(APP_TIME.now_s() + left_s)


current: ContextVar[Current] = ContextVar("current")


@dataclass(slots=True)
class Shared:
    """Common state of the calls of a running app; `values` are those of scope "app", by function."""

    app: RunningService
    state: Any = None
    values: dict[Callable[..., Any], Any] = field(default_factory=dict)
    threads: Threads = field(default_factory=Threads)


@dataclass(slots=True)
class Call:
    record: Any
    stack: AsyncExitStack
    made: dict[Callable[..., Any], Any] = field(default_factory=dict)


Get: TypeAlias = Callable[[Any], Any]
"""Takes the record, or a batch's list, and returns an argument."""
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """A dependency with bound parameters; `run` is `fn` or its override."""

    fn: Callable[..., Any]
    run: Callable[..., Any]
    scope: Scope
    gets: Mapping[str, "Get | Dependency"]

    async def value(self, call: Call, shared: Shared | None) -> Any:
        if self.scope == "app":
            assert shared is not None
            return shared.values[self.fn]
        if (known := call.made.get(self.fn, _NOTHING)) is not _NOTHING:
            return known
        call.made[self.fn] = made = await self.make(call, shared)
        return made

    async def make(self, call: Call, shared: Shared | None) -> Any:
        arguments = await filled(self.gets, call, shared)
        run = _called(self.run)
        if inspect.isasyncgenfunction(run):
            return await call.stack.enter_async_context(asynccontextmanager(self.run)(**arguments))
        if inspect.isgeneratorfunction(run):
            return call.stack.enter_context(contextmanager(self.run)(**arguments))
        made = self.run(**arguments)
        return await made if inspect.isawaitable(made) else made

    def parts(self) -> "Iterator[Dependency]":
        for get in self.gets.values():
            if isinstance(get, Dependency):
                yield from get.parts()
        yield self


async def filled(gets: "Mapping[str, Get | Dependency]", call: Call, shared: Shared | None) -> dict[str, Any]:
    return {
        name: await get.value(call, shared) if isinstance(get, Dependency) else get(call.record)
        for name, get in gets.items()
    }


async def closing(stack: AsyncExitStack, work: Awaitable[Any]) -> Any:
    """Await the work and close the stack; exceptions propagate even if the stack suppresses them."""
    async with stack:
        try:
            return await work
        except BaseException as problem:
            failed = problem
            raise
    raise failed


def _called(function: Any) -> Any:
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
