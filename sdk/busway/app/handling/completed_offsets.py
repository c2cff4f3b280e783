"""Up to where a partition is finished, and what is finished beyond that.

What lives here: records that were begun and finished, in any order; the offset that may be committed, which is the one behind the
longest finished beginning; and the metadata that goes with it, from which the next owner learns what not to handle again. What does not:
committing (`worker`).
"""

from collections import deque
from collections.abc import Iterable

from busway.app.offset_set import OffsetSet


class CompletedOffsets:
    """The records of one partition that were handed out.

    Args:
        start: where it goes on by somebody's word, which is then the first offset to commit; None for where the group was.
        ahead: what the group's metadata says is finished; dropped when the partition goes on below it, where it is another log.
    """

    def __init__(self, start: int | None = None, ahead: OffsetSet | None = None) -> None:
        self._begun: deque[int] = deque()
        self._finished: set[int] = set()
        self._committable = start
        self._last = -1
        self._first = -1 if start is None else start
        self._ahead = ahead

    def follows(self, offset: int) -> bool:
        """Whether a record of that offset may come next."""
        return offset > self._last

    def begin(self, offset: int) -> bool:
        """A record was handed out; offsets only grow.

        Returns:
            Whether it is to be handled; False when a former owner has, and it is finished.

        Raises:
            AssertionError: it is not above the last one.
        """
        assert offset > self._last, (offset, self._last)
        if self._first < 0:
            self._first = offset
        self._last = offset
        self._begun.append(offset)
        if self._ahead is None:
            return True
        if offset < self._ahead.below or offset >= self._ahead.end:
            self._ahead = None
        elif offset in self._ahead:
            self.finish(offset)
            return False
        return True

    def finish(self, offset: int) -> None:
        """A record was handled, or is safe among the dead letters."""
        assert offset <= self._last, (offset, self._last)
        begun, finished = self._begun, self._finished
        if not begun or begun[0] != offset:
            finished.add(offset)
            return
        begun.popleft()
        self._committable = offset + 1
        while finished and begun and begun[0] in finished:
            done = begun.popleft()
            finished.discard(done)
            self._committable = done + 1

    def with_finished(self, offsets: Iterable[int]) -> "CompletedOffsets":
        """As it will be when these are finished, too."""
        after = CompletedOffsets()
        after._begun, after._finished = self._begun.copy(), self._finished.copy()
        after._committable, after._first, after._last, after._ahead = (
            self._committable,
            self._first,
            self._last,
            self._ahead,
        )
        for offset in offsets:
            after.finish(offset)
        return after

    @property
    def committable(self) -> int | None:
        """The offset to commit; None while nothing is finished."""
        return self._committable

    @property
    def all_finished(self) -> OffsetSet | None:
        """What to commit: the offset and, as its metadata, what is finished beyond it; None while nothing is."""
        runs = self._ahead.from_offset(self._last + 1) if self._ahead is not None else []
        if self._first < 0 or (self._committable is None and not self._finished and not runs):
            return None
        finished_runs: list[tuple[int, int]] = []
        since: int | None = None
        for offset in self._begun if self._finished else ():
            if offset not in self._finished:
                since = None
            elif since is None:
                since = offset
                finished_runs.append((offset, offset + 1))
            else:
                # Offsets between two records that are finished hold none: compacted away, or a marker.
                finished_runs[-1] = since, offset + 1
        done = OffsetSet(self._first if self._committable is None else self._committable, finished_runs)
        for first, end in runs:
            done.add(first, end)
        return done

    @property
    def first(self) -> int:
        """The first record of all; -1 before it has come."""
        return self._first

    @property
    def open(self) -> int:
        """How many records were begun and may not be committed yet."""
        return len(self._begun)
