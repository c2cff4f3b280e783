"""Offsets that producers have committed within transactions whose end is not known yet (KIP-98, KIP-447).

What lives here: the table of them, by group. What does not: the rule which of them counts in the end (`kernel.open_transactions`), who may
commit (`classic`), and the offsets in force (`shard`).
"""

from collections.abc import Collection
from typing import Final

from busway_bus.groups.memory import GroupMemory, Holding
from busway_bus.groups.offsets import CommittedOffset, Place
from busway_bus.kernel.limits import PENDING_OFFSET_BYTES
from busway_bus.kernel.open_transactions import OpenTransactions

NONE: Final[tuple[Place, ...]] = ()


def pending_bytes(place: Place, metadata: str) -> int:
    """What a pending offset takes, about."""
    return PENDING_OFFSET_BYTES + len(place[0]) + len(metadata)


def _size(place: Place, offset: CommittedOffset) -> int:
    return pending_bytes(place, offset.metadata)


class PendingOffsets:
    """Those of all groups of one shard.

    Args:
        memory: what those of all shards take together.
    """

    def __init__(self, memory: GroupMemory) -> None:
        self._holding = Holding(memory)
        self._groups: dict[str, OpenTransactions[Place, CommittedOffset]] = {}
        self._of: dict[int, dict[str, None]] = {}

    def fits(self, more: int) -> bool:
        """Whether there is room for so many bytes more."""
        return self._holding.fits(more)

    def of(self, group_id: str) -> Collection[Place]:
        """The partitions of which the group's offset is not decided."""
        table = self._groups.get(group_id)
        return tuple(table) if table is not None else NONE

    def holds(self, group_id: str, place: Place | None = None) -> bool:
        """Whether the group's offset of this partition is not decided; without one, of any."""
        table = self._groups.get(group_id)
        return table is not None and (place is None or place in table)

    def put(self, producer_id: int, group_id: str, place: Place, offset: CommittedOffset) -> None:
        """A transaction of this producer has committed it."""
        table = self._groups.get(group_id)
        if table is None:
            table = self._groups[group_id] = OpenTransactions(_size)
        before = table.held
        table.put(producer_id, place, offset)
        self._of.setdefault(producer_id, {})[group_id] = None
        self._settle(group_id, table, before)

    def overtake(self, group_id: str, place: Place) -> None:
        """An offset was committed without a transaction: what is pending for this partition will not count."""
        table = self._groups.get(group_id)
        if table is not None:
            table.overtake(place)

    def forget(self, group_id: str, place: Place) -> None:
        """The offset of this partition was removed, with what was pending."""
        table = self._groups.get(group_id)
        if table is not None:
            before = table.held
            table.forget(place)
            self._settle(group_id, table, before)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[str, list[tuple[Place, CommittedOffset]]]]:
        """The producer's transaction is over: by group the offsets that are in force from now on."""
        in_force: list[tuple[str, list[tuple[Place, CommittedOffset]]]] = []
        for group_id in self._of.pop(producer_id, ()):
            table = self._groups.get(group_id)
            if table is not None:
                before = table.held
                offsets = table.end(producer_id, committed=committed)
                if offsets:
                    in_force.append((group_id, offsets))
                self._settle(group_id, table, before)
        return in_force

    def _settle(self, group_id: str, table: OpenTransactions[Place, CommittedOffset], before: int) -> None:
        self._holding.change(table.held - before)
        if not table:
            del self._groups[group_id]
