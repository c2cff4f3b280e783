"""What the members of all groups of a node hold: their ids, subscriptions and assignments, which are theirs to choose.

What lives here: the count. What does not: which request has to be refused for it (`admission`). Kafka has no such bound; there a few
hundred members with a megabyte of metadata each take the coordinator's memory.
"""

from busway_bus.kernel.limits import GROUP_BYTES_MAX, GROUPS_BYTES_MAX, MEMBER_BYTES


class GroupMemory:
    """Bytes held by all groups together, at most `limit`, and by each, at most `group_limit`."""

    def __init__(self, limit: int = GROUPS_BYTES_MAX, group_limit: int = GROUP_BYTES_MAX) -> None:
        self._limit = limit
        self._group_limit = group_limit
        self.used = 0

    def fits(self, held: int, more: int) -> bool:
        """Whether a group that holds so much may hold so much more."""
        return more <= 0 or (held + more <= self._group_limit and self.used + more <= self._limit)


class Holding:
    """What one group holds; it gives all of it back when the group is let go, however that comes about."""

    __slots__ = ("_memory", "held")

    def __init__(self, memory: GroupMemory) -> None:
        self._memory = memory
        self.held = 0

    def change(self, by: int) -> None:
        """It holds more or less."""
        self.held += by
        self._memory.used += by

    def fits(self, more: int) -> bool:
        """Whether it may hold so much more."""
        return self._memory.fits(self.held, more)

    def __del__(self) -> None:
        self._memory.used -= self.held


class HandedOut(dict[str, int]):
    """Member ids that were handed out and are waited for, each with the moment in which it lapses; counted while they are here."""

    def __init__(self, holding: Holding) -> None:
        super().__init__()
        self._holding = holding

    def __setitem__(self, member_id: str, deadline: int) -> None:
        self._holding.change((member_id not in self) * (MEMBER_BYTES + len(member_id)))
        super().__setitem__(member_id, deadline)

    def __delitem__(self, member_id: str) -> None:
        super().__delitem__(member_id)
        self._holding.change(-MEMBER_BYTES - len(member_id))

    def discard(self, member_id: str) -> None:
        """Wait for it no longer."""
        if member_id in self:
            del self[member_id]

    def clear(self) -> None:
        """Wait for none."""
        for member_id in tuple(self):
            del self[member_id]
