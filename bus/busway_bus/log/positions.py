"""Where in a segment's file offsets are that readers ask for again and again.

What lives here: a few of them, the newest. What does not: finding them (`segment`).
"""

from busway_bus.kernel.limits import POSITIONS_MAX


class Positions:
    """Positions of batches by the offsets that they were looked up for.

    What readers ask for never takes the place of the ends of flushes: where the last one ended is where the high watermark is, and is
    asked for by all of them.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def get(self, offset: int) -> int | None:
        """The position for an offset, None where it is not remembered."""
        position = self._ends.get(offset)
        return self._starts.get(offset) if position is None else position

    def end(self, offset: int, position: int) -> None:
        """A flush ends before this offset."""
        _remember(self._ends, offset, position)

    def start(self, offset: int, position: int) -> None:
        """A reader asked for this offset."""
        _remember(self._starts, offset, position)

    def clear(self) -> None:
        """The file has changed."""
        self._ends.clear()
        self._starts.clear()


def _remember(positions: dict[int, int], offset: int, position: int) -> None:
    if len(positions) >= POSITIONS_MAX:
        del positions[next(iter(positions))]
    positions[offset] = position
