"""Cache of file positions of frequently read offsets in a segment.

Here: the newest `POSITIONS_MAX` of each kind.
Not here: the look-up (`segment`).
"""

from busway_bus.kernel.limits import POSITIONS_MAX


class Positions:
    """Positions of batches by offset.

    Readers' offsets never evict ends of flushes: every reader looks up the last, the high watermark.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def get(self, offset: int) -> int | None:
        position = self._ends.get(offset)
        return self._starts.get(offset) if position is None else position

    def end(self, offset: int, position: int) -> None:
        _remember(self._ends, offset, position)

    def start(self, offset: int, position: int) -> None:
        _remember(self._starts, offset, position)

    def clear(self) -> None:
        self._ends.clear()
        self._starts.clear()


def _remember(positions: dict[int, int], offset: int, position: int) -> None:
    if len(positions) >= POSITIONS_MAX:
        del positions[next(iter(positions))]
    positions[offset] = position
