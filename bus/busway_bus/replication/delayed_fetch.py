"""A fetch that has not enough yet and waits: for more in any of its partitions, or for the end of its time.

What lives here: the wait. What does not: what is enough (`handlers.fetch`). It is asked at once, by whoever moves a high watermark, so
that a wait costs a look at one partition for each move of it and ends once; what follows from the end has a round of the event loop of
its own, as others are under way when it comes.
"""

import asyncio
from collections.abc import Callable, Iterable

from busway_bus.replication.partition import Partition


class DelayedFetch:
    """One fetch's wait, which begins now.

    Args:
        enough: whether a partition that has more, or is gone, ends the wait.
        ended: called when it has ended, with what it failed on, None where it did not. Never within this call or that of `look_at`.

    Attributes:
        over: whether it has ended.
    """

    __slots__ = ("_ended", "_enough", "_loop", "_partitions", "_timer", "over")

    def __init__(
        self,
        partitions: Iterable[Partition],
        enough: Callable[[Partition], bool],
        ended: Callable[[Exception | None], None],
        timeout_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = enough
        self._ended = ended
        self._partitions = tuple(partitions)
        self.over = False
        for partition in self._partitions:
            partition.waiters[self] = None
        self._timer = self._loop.call_later(timeout_s, self.end)

    def look_at(self, partition: Partition) -> None:
        """A partition has more, or may have."""
        if not self.over and self._enough(partition):
            self.end()

    def end(self, problem: Exception | None = None) -> None:
        """Wait no more; nothing happens where it is over already."""
        if self.over:
            return
        self.over = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)
        self._loop.call_soon(self._ended, problem)
