"""Changes, for current subscribers.

Here: `Feed`.
Not here: writing changes to a page (`busway.web.events`).
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LISTENER_QUEUE: Final = 1000
"""Default size of a subscriber's queue; when it is full, the oldest change is dropped."""


class Feed(Generic[T]):
    """Broadcast of changes to current subscribers; `queue` is their default queue size."""

    def __init__(self, *, queue: int = LISTENER_QUEUE) -> None:
        self._size = queue
        self._listeners: set[asyncio.Queue[T]] = set()

    def put(self, change: T) -> None:
        """Publish a change without waiting."""
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(change)

    @contextlib.contextmanager
    def listening(self, maxsize: int | None = None) -> Iterator["asyncio.Queue[T]"]:
        """Subscribe to changes from now on, with a queue of that size.

        Raises:
            ValueError: the size is not positive.
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
