"""Lifespans: what an app opens before its first record and closes after its last.

Here: checking them.
Not here: entering them (`application`).
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from busway.app.calling.binding import refusal

A = TypeVar("A")
Lifespan: TypeAlias = Callable[[A], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]


def entered(lifespan: Lifespan[A], app: A) -> AbstractAsyncContextManager[Any]:
    """Return a lifespan as a context manager; `BadDeclaration` if it is none."""
    rule = "takes the app, and is an async generator function that yields once or returns an async context manager"
    try:
        inspect.signature(lifespan).bind(app)
    except TypeError as problem:
        raise refusal(lifespan, f"{rule}: {problem}", "lifespan") from None
    returned: Any = lifespan(app)
    if isinstance(returned, AbstractAsyncContextManager):
        return returned
    if not isinstance(returned, AsyncIterator):
        if inspect.iscoroutine(returned):
            returned.close()
        raise refusal(lifespan, f"{rule}; it returned {type(returned).__name__}", "lifespan")
    return asynccontextmanager(lambda: returned)()
