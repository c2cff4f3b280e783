"""Bound on all responses in memory that clients have not accepted.

Here: the count, and closing the stalest connection.
Not here: sockets and queues (`stream`), turns of writes (`write_rounds`). Fetched records count once read from their
file.
"""

from typing import Protocol

from busway_bus.kernel.limits import RESPONSE_BYTES_MAX, SLICE_BYTES_MAX, SLICE_BYTES_PRESSED_MAX


class Holder(Protocol):
    """A connection with responses.

    Attributes:
        taken_at: when its client last accepted bytes, in s of a monotonic clock.
    """

    taken_at: float

    def cut_off(self) -> None:
        """Close: the client does not read while others need the memory."""


class ResponseMemory:
    def __init__(self, limit: int = RESPONSE_BYTES_MAX) -> None:
        self._limit = limit
        self.used = 0
        self._held: dict[Holder, int] = {}

    @property
    def slice_bytes(self) -> int:
        """Limit of file bytes in memory per connection without `sendfile`."""
        return SLICE_BYTES_MAX if self.used * 2 < self._limit else SLICE_BYTES_PRESSED_MAX

    def update(self, holder: Holder, held: int) -> None:
        """Update one connection's count; over the limit, close the stalest connections."""
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
