"""The order of commits: an offset that is tried again never undoes a later one.

What lives here: whose turn it is, and which commit has taken over a partition from which. What does not: the requests and when they are
tried again (`offsets`).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from busway.errors import BuswayError, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.types import TopicPartition

GIVEN_UP = "the later commit that took over these offsets was given up"


class Commit:
    """One that is under way."""

    def __init__(self) -> None:
        self._later: dict[TopicPartition, Commit] = {}
        self._left_to: set[Commit] = set()
        self._end: asyncio.Future[BuswayError | None] = asyncio.get_running_loop().create_future()

    def lose(self, partition: TopicPartition, later: "Commit") -> None:
        """A later commit is about this partition."""
        self._later[partition] = later

    def leave(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of what is to be sent now, what is left to later commits; `left_to_others` waits for those."""
        lost = {partition for partition in partitions if partition in self._later}
        self._left_to.update(self._later[partition] for partition in lost)
        return lost

    async def left_to_others(self, deadline: float) -> None:
        """Return when the commits that something was left to are made.

        Args:
            deadline: by the running loop's clock.

        Raises:
            RequestTimedOut: they have not ended by then.
            BuswayError: why one of them was not made.
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
        """Tell those whose partitions it took over."""
        self._end.set_result(problem)


class CommitOrder:
    """The commits of one member.

    Attributes:
        turn: held while a request is under way, so that they arrive in the order of the calls.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._newest: dict[TopicPartition, Commit] = {}

    def under_way(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Return those of these partitions, or of all, that a commit under way is about."""
        return list(self._newest) if partitions is None else [one for one in partitions if one in self._newest]

    @contextmanager
    def begin(self, partitions: Iterable[TopicPartition]) -> Iterator[Commit]:
        """A commit of these partitions, later than all that have begun."""
        commit, mine = Commit(), list(partitions)
        for partition in mine:
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
            for partition in mine:
                if self._newest.get(partition) is commit:
                    del self._newest[partition]
            commit.end(problem)
