"""Finished offsets of a partition.

Here: the committable offset, behind the longest finished prefix; metadata that spares the next owner records finished
ahead.
Not here: committing (`worker`).
"""

from collections import deque
from collections.abc import Iterable

from busway.app.offset_set import OffsetSet


class CompletedOffsets:
    """Records of one partition that were given to handlers.

    Args:
        start: the first offset to commit, if an extension or a seek chose it; None for the group's offset.
        ahead: finished offsets from the group's metadata; dropped if the partition continues below, in another log.
    """

    def __init__(self, start: int | None = None, ahead: OffsetSet | None = None) -> None:
        self._begun: deque[int] = deque()
        self._finished: set[int] = set()
        self._committable = start
        self._last = -1
        self._first = -1 if start is None else start
        self._ahead = ahead

    def follows(self, offset: int) -> bool:
        return offset > self._last

    def begin(self, offset: int) -> bool:
        """Register a record; return whether to handle it: False if a former owner finished it."""
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
        """The offset to commit, and those finished beyond it; None while nothing is."""
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
                # Offsets between two adjacent finished records hold none: compacted away, or a marker.
                finished_runs[-1] = since, offset + 1
        done = OffsetSet(self._first if self._committable is None else self._committable, finished_runs)
        for first, end in runs:
            done.add(first, end)
        return done

    @property
    def first(self) -> int:
        return self._first

    @property
    def open(self) -> int:
        """Number of begun records that may not be committed yet."""
        return len(self._begun)
