"""Order of a member's commits: a retry never overwrites a later offset.

Not here: requests and retries (`offsets`).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from busway.errors import BuswayError, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.types import TopicPartition

GIVEN_UP = "the later commit that took over these offsets was given up"


class Commit:
    def __init__(self) -> None:
        self._later: dict[TopicPartition, Commit] = {}
        self._left_to: set[Commit] = set()
        self._end: asyncio.Future[BuswayError | None] = asyncio.get_running_loop().create_future()

    def lose(self, partition: TopicPartition, later: "Commit") -> None:
        self._later[partition] = later

    def leave(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that later commits took over; `wait_taken_over` waits for those commits."""
        lost = {partition for partition in partitions if partition in self._later}
        self._left_to.update(self._later[partition] for partition in lost)
        return lost

    async def wait_taken_over(self, deadline: float) -> None:
        """Wait until `deadline`, by the loop's clock, for the commits that took partitions over.

        Raise `RequestTimedOut`, or the first error of one of them.
        """
        if not self._left_to:
            return
        ends = [other._end for other in self._left_to]
        _, waiting = await REAL_TIME.wait(ends, timeout=max(deadline - REAL_TIME.now_s(), 0))
        if waiting:
            raise RequestTimedOut("the later commit that took over these offsets has not ended in time")
        if problems := [problem for end in ends if (problem := end.result()) is not None]:
            raise problems[0]

    def end(self, problem: BuswayError | None) -> None:
        self._end.set_result(problem)


class CommitOrder:
    """Commits of one member. `turn` is held during a request, so that requests arrive in the order of the calls."""

    def __init__(self) -> None:
        self.turn: asyncio.Lock = asyncio.Lock()
        self._newest: dict[TopicPartition, Commit] = {}

    def under_way(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        return (
            list(self._newest)
            if partitions is None
            else [partition for partition in partitions if partition in self._newest]
        )

    @contextmanager
    def begin(self, partitions: Iterable[TopicPartition]) -> Iterator[Commit]:
        commit, own_partitions = Commit(), list(partitions)
        for partition in own_partitions:
            if (before := self._newest.get(partition)) is not None:
                before.lose(partition, commit)
            self._newest[partition] = commit
        problem: BuswayError | None = BuswayError(GIVEN_UP)
        try:
            yield commit
            problem = None
        except BuswayError as failed:
            problem = failed
            raise
        finally:
            for partition in own_partitions:
                if self._newest.get(partition) is commit:
                    del self._newest[partition]
            commit.end(problem)
