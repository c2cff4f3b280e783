"""Cache of file positions of frequently read offsets in a segment.

Here: the newest `POSITIONS_MAX` of each kind, and the newest batch, which every follower reads next.
Not here: the look-up (`segment`).
"""

from typing import Final

from busway_bus.kernel.limits import POSITIONS_MAX

_NONE: Final = (-1, -1)


class Positions:
    """Positions of batches by offset.

    Readers' offsets never evict ends of flushes: every reader looks up the last, the high watermark.

    Attributes:
        newest: first offset and position of the last appended batch; one value, as other threads read it.
    """

    __slots__ = ("_ends", "_starts", "newest")

    def __init__(self) -> None:
        self.newest = _NONE
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def get(self, offset: int) -> int | None:
        newest = self.newest
        if newest[0] == offset:
            return newest[1]
        position = self._ends.get(offset)
        return self._starts.get(offset) if position is None else position

    def end(self, offset: int, position: int) -> None:
        _remember(self._ends, offset, position)

    def start(self, offset: int, position: int) -> None:
        _remember(self._starts, offset, position)

    def clear(self) -> None:
        self.newest = _NONE
        self._ends.clear()
        self._starts.clear()


def _remember(positions: dict[int, int], offset: int, position: int) -> None:
    if len(positions) >= POSITIONS_MAX:
        del positions[next(iter(positions))]
    positions[offset] = position
