"""Moments until which members of a group are waited for.

What lives here: the moment of each, and who is late. What does not: what is waited for, and what becomes of who is late.
"""

from collections.abc import Container
from typing import Final

from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX

AGAIN_MS: Final = 1_000
"""When a member is told of again whose end could not be written."""


class Ends:
    """One wait for each member at most."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._deadlines = Deadlines()

    def put(self, member_id: str, end: int) -> None:
        """Wait for a member until `end`, whatever was so before."""
        self._ends[member_id] = end
        self._deadlines.discard(member_id)
        self._deadlines.put(member_id, end)

    def begin(self, member_id: str, end: int) -> None:
        """Wait for a member until `end` where it is not waited for already."""
        if member_id not in self._ends:
            self.put(member_id, end)

    def discard(self, member_id: str) -> None:
        """Wait for a member no longer."""
        self._ends.pop(member_id, None)
        self._deadlines.discard(member_id)

    def earliest(self) -> int | None:
        """When `late` may find somebody, in ms; None for never."""
        return self._deadlines.earliest()

    def late(self, now: int, members: Container[str]) -> list[str]:
        """Those of the members that are late, a bounded number of them; they are told of again a while later if they stay."""
        found: list[str] = []
        for member_id in self._deadlines.due(now, MEMBERS_PER_TICK_MAX):
            if member_id not in members:
                del self._ends[member_id]  # what would have brought it in could not be written
                continue
            found.append(member_id)
            self._deadlines.put(member_id, now + AGAIN_MS)
        return found
