"""Wait of a fetch for records in any partition, or its timeout.

Here: the wait.
Not here: the condition (`handlers.fetch`), checked when a partition's high watermark moves. The callback runs in a
later round: `look_at` is called in the middle of other work.
"""

import asyncio
from collections.abc import Callable, Iterable

from busway_bus.replication.partition import Partition


class DelayedFetch:
    """The wait of one fetch, started by construction.

    Args:
        enough: whether a changed or deleted partition ends the wait.
        of_follower: it waits for records that are not committed, too.
        ended: called once with the error, or None; never within the constructor or `look_at`.
    """

    __slots__ = ("_ended", "_enough", "_loop", "_of_follower", "_partitions", "_timer", "over")

    def __init__(
        self,
        partitions: Iterable[Partition],
        enough: Callable[[Partition], bool],
        ended: Callable[[Exception | None], None],
        timeout_s: float,
        *,
        of_follower: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = enough
        self._ended = ended
        self._partitions = tuple(partitions)
        self.over = False
        self._of_follower = of_follower
        for partition in self._partitions:
            (partition.followers_waiters if of_follower else partition.waiters)[self] = None
        self._timer = self._loop.call_later(timeout_s, self.end)

    def look_at(self, partition: Partition) -> None:
        if not self.over and self._enough(partition):
            self.end()

    def end(self, problem: Exception | None = None) -> None:
        if self.over:
            return
        self.over = True
        self._timer.cancel()
        for partition in self._partitions:
            (partition.followers_waiters if self._of_follower else partition.waiters).pop(self, None)
        self._loop.call_soon(self._ended, problem)
