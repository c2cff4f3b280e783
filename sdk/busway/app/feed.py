"""Changes, handed to whoever listens now.

What lives here: `Feed`, which tables and pages share. What does not: what changed; writing it to a page (`busway.web.events`).
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LISTENER_QUEUE: Final = 1000
"""Changes that wait for a slow listener unless it says otherwise; then the oldest go, as newer ones follow."""


class Feed(Generic[T]):
    """Hands each change to everybody who listens now.

    Args:
        queue: how many changes wait for a listener that does not say it.
    """

    def __init__(self, *, queue: int = LISTENER_QUEUE) -> None:
        self._size = queue
        self._listeners: set[asyncio.Queue[T]] = set()

    def put(self, change: T) -> None:
        """Tell it; never waits. A listener whose queue is full loses its oldest change, never the last."""
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(change)

    @contextlib.contextmanager
    def listening(self, maxsize: int | None = None) -> Iterator["asyncio.Queue[T]"]:
        """Changes from now on, in a queue of that size.

        Raises:
            ValueError: the size is no positive number.
        """
        size = self._size if maxsize is None else maxsize
        if size < 1:
            raise ValueError(f"maxsize={size}: a listener's queue holds at least one")
        queue: asyncio.Queue[T] = asyncio.Queue(size)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)
