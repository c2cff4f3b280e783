"""A fetch that has not enough yet and waits: for more in any of its partitions, or for the end of its time.

What lives here: the wait. What does not: what is enough (`handlers.fetch`). It is asked at once, by whoever moves a high watermark, so
that a wait costs a look at one partition for each move of it and ends once.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable

from busway_bus.replication.partition import Partition


class DelayedFetch:
    """One fetch's wait.

    Args:
        enough: whether a partition that has more, or is gone, ends the wait.

    Attributes:
        over: done when it has ended, with whether that was before its time.
    """

    def __init__(self, partitions: Iterable[Partition], enough: Callable[[Partition], bool], timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[bool] = loop.create_future()
        self._enough = enough
        self._callbacks = [(partition, functools.partial(self.look_at, partition)) for partition in partitions]
        for partition, callback in self._callbacks:
            partition.waiters[callback] = None
        self._timer = loop.call_later(timeout_s, self._end, False)
        self.over.add_done_callback(self._close)

    def look_at(self, partition: Partition) -> None:
        """A partition has more, or may have."""
        if not self.over.done() and self._enough(partition):
            self._end(True)

    def _end(self, early: bool) -> None:
        if not self.over.done():
            self.over.set_result(early)

    def _close(self, _: "asyncio.Future[bool]") -> None:
        self._timer.cancel()
        for partition, callback in self._callbacks:
            partition.waiters.pop(callback, None)
