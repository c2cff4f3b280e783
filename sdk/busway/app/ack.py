"""Up to where a partition is finished.

What lives here: records that were begun and finished, in any order, and the offset that may be committed: the one behind the
longest finished beginning. What does not: committing (`worker`).
"""

from collections import deque


class CompletedOffsets:
    """The records of one partition that were handed out.

    Args:
        start: where it goes on by somebody's word, which is then the first offset to commit; None for where the group was.
    """

    def __init__(self, start: int | None = None) -> None:
        self._begun: deque[int] = deque()
        self._finished: set[int] = set()
        self._committable = start
        self._last = -1
        self._first = -1 if start is None else start

    def follows(self, offset: int) -> bool:
        """Whether a record of that offset may come next."""
        return offset > self._last

    def begin(self, offset: int) -> None:
        """A record was handed out; offsets only grow.

        Raises:
            AssertionError: it is not above the last one.
        """
        assert offset > self._last, (offset, self._last)
        if self._first < 0:
            self._first = offset
        self._last = offset
        self._begun.append(offset)

    def finish(self, offset: int) -> None:
        """A record was handled, or is safe among the dead letters."""
        assert offset <= self._last, (offset, self._last)
        self._finished.add(offset)
        while self._begun and self._begun[0] in self._finished:
            done = self._begun.popleft()
            self._finished.discard(done)
            self._committable = done + 1

    @property
    def committable(self) -> int | None:
        """The offset to commit; None while nothing is finished."""
        return self._committable

    @property
    def first(self) -> int:
        """The first record of all; -1 before it has come."""
        return self._first

    @property
    def open(self) -> int:
        """How many records were begun and may not be committed yet."""
        return len(self._begun)
