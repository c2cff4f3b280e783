"""How much all connections together may hold of answers that their clients have not taken.

What lives here: the count, and who is cut off where it is too much: who has taken nothing for longest. What does not: sockets and
queues (`stream`), whose turn it is to write (`write_turns`). What a fetch answers with is not counted while it lies in its file.
"""

from typing import Protocol

from busway_bus.kernel.limits import RESPONSE_BYTES_MAX, SLICE_BYTES_MAX, SLICE_BYTES_PRESSED_MAX


class Holder(Protocol):
    """Who holds answers.

    Attributes:
        taken_at: when its client last took something, in seconds of a clock that does not jump.
    """

    taken_at: float

    def cut_off(self) -> None:
        """End, because the client does not take its answers while others need the memory."""


class ResponseMemory:
    """What all connections hold, in bytes.

    Attributes:
        used: by all of them together.
    """

    def __init__(self, limit: int = RESPONSE_BYTES_MAX) -> None:
        self._limit = limit
        self.used = 0
        self._held: dict[Holder, int] = {}

    @property
    def slice_bytes(self) -> int:
        """How much of a file may be in memory for one connection whose socket cannot take it from the file itself."""
        return SLICE_BYTES_MAX if self.used * 2 < self._limit else SLICE_BYTES_PRESSED_MAX

    def update(self, holder: Holder, held: int) -> None:
        """Count one connection anew; where all of them hold too much, who has taken nothing for longest is cut off."""
        before = self._held.get(holder, 0)
        if held == before:
            return
        if held:
            self._held[holder] = held
        elif before:
            del self._held[holder]
        self.used += held - before
        while self.used > self._limit:
            stalest = min(self._held, key=lambda holder: holder.taken_at)
            self.used -= self._held.pop(stalest)
            stalest.cut_off()
