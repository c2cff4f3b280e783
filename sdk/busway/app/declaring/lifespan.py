"""What an app opens before its first record and closes after its last one.

What lives here: which functions are a lifespan, and the refusal of others. What does not: when it is entered (`bus`).
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from busway.app.declaring.binding import refusal

if TYPE_CHECKING:
    from busway.app.bus import App

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]


def entered(lifespan: Lifespan, app: "App") -> AbstractAsyncContextManager[Any]:
    """A lifespan as something to enter.

    Raises:
        BadDeclaration: it is none; names its line.
    """
    wanted = "takes the app, and is an async generator function that yields once or returns an async context manager"
    try:
        inspect.signature(lifespan).bind(app)
    except TypeError as problem:
        raise refusal(lifespan, f"{wanted}: {problem}", "lifespan") from None
    found: Any = lifespan(app)
    if isinstance(found, AbstractAsyncContextManager):
        return found
    if not isinstance(found, AsyncIterator):
        if inspect.iscoroutine(found):
            found.close()
        raise refusal(lifespan, f"{wanted}; it returned {type(found).__name__}", "lifespan")
    return asynccontextmanager(lambda: found)()
