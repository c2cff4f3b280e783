"""Timeouts of a group's members.

Here: each member's timeout.
Not here: reasons and consequences.
"""

from collections.abc import Container
from typing import Final

from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.limits import MEMBERS_PER_TICK_MAX

AGAIN_MS: Final = 1_000
"""Delay before a late member is returned again."""


class MemberTimeouts:
    """At most one timeout for each member."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._deadlines = Deadlines()

    def put(self, member_id: str, end: int) -> None:
        self._ends[member_id] = end
        self._deadlines.discard(member_id)
        self._deadlines.put(member_id, end)

    def begin(self, member_id: str, end: int) -> None:
        if member_id not in self._ends:
            self.put(member_id, end)

    def discard(self, member_id: str) -> None:
        self._ends.pop(member_id, None)
        self._deadlines.discard(member_id)

    def earliest(self) -> int | None:
        return self._deadlines.earliest()

    def late(self, now: int, members: Container[str]) -> list[str]:
        """Return a bounded number of late members.

        A member still present is returned again after `AGAIN_MS`.
        """
        late: list[str] = []
        for member_id in self._deadlines.due(now, MEMBERS_PER_TICK_MAX):
            if member_id not in members:
                del self._ends[member_id]  # the record that adds this member could not be written
                continue
            late.append(member_id)
            self._deadlines.put(member_id, now + AGAIN_MS)
        return late
