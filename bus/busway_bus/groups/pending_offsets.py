"""Offsets committed in open transactions (KIP-98, KIP-447).

Here: their table by group.
Not here: which apply at the end (`kernel.open_transactions`), stored offsets (`committed`).
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from busway_bus.groups.offsets import CommittedOffset, TopicPartition
from busway_bus.kernel.fair_share import NOBODY, Account, FairShare
from busway_bus.kernel.limits import PENDING_OFFSET_BYTES
from busway_bus.kernel.open_transactions import OpenTransactions

NONE: Final[tuple[TopicPartition, ...]] = ()


def pending_bytes(partition: TopicPartition, metadata: str) -> int:
    return PENDING_OFFSET_BYTES + len(partition[0]) + len(metadata)


class PendingOffset(NamedTuple):
    offset: CommittedOffset
    host: str


def _count(account: Account, offsets: Sequence[tuple[TopicPartition, PendingOffset]], by: int) -> None:
    sizes: dict[str, int] = {}
    for partition, (offset, host) in offsets:
        sizes[host] = sizes.get(host, 0) + pending_bytes(partition, offset.metadata)
    for host, size in sizes.items():
        account.change(host, by * size)


class PendingOffsets:
    """The pending offsets of one shard's groups.

    `share`: memory of all shards, by host.
    """

    def __init__(self, share: FairShare) -> None:
        self._account = Account(share)
        self._counted = partial(_count, self._account)
        self._groups: dict[str, OpenTransactions[TopicPartition, PendingOffset]] = {}
        self._of: dict[int, dict[str, None]] = {}

    @property
    def held_bytes(self) -> int:
        return self._account.held

    def refusal(self, host: str, more: int) -> str | None:
        return self._account.refusal(host, more)

    def of(self, group_id: str) -> Collection[TopicPartition]:
        table = self._groups.get(group_id)
        return tuple(table) if table is not None else NONE

    def holds(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        table = self._groups.get(group_id)
        return table is not None and (partition is None or partition in table)

    def put(
        self, producer_id: int, group_id: str, partition: TopicPartition, offset: CommittedOffset, host: str = NOBODY
    ) -> None:
        table = self._groups.get(group_id)
        if table is None:
            table = self._groups[group_id] = OpenTransactions(self._counted)
        table.put(producer_id, partition, PendingOffset(offset, host))
        self._of.setdefault(producer_id, {})[group_id] = None

    def overtake(self, group_id: str, partition: TopicPartition) -> None:
        """Void a partition's pending offsets, after a later non-transactional commit."""
        table = self._groups.get(group_id)
        if table is not None:
            table.overtake(partition)

    def forget(self, group_id: str, partition: TopicPartition) -> None:
        """Remove a partition's pending offsets, after its offset was deleted."""
        table = self._groups.get(group_id)
        if table is not None:
            table.forget(partition)
            self._settle(group_id, table)

    def end(
        self, producer_id: int, *, committed: bool
    ) -> list[tuple[str, list[tuple[TopicPartition, CommittedOffset]]]]:
        in_force: list[tuple[str, list[tuple[TopicPartition, CommittedOffset]]]] = []
        for group_id in self._of.pop(producer_id, ()):
            table = self._groups.get(group_id)
            if table is not None:
                offsets = table.end(producer_id, committed=committed)
                if offsets:
                    in_force.append((group_id, [(partition, pending.offset) for partition, pending in offsets]))
                self._settle(group_id, table)
        return in_force

    def _settle(self, group_id: str, table: OpenTransactions[TopicPartition, PendingOffset]) -> None:
        if not table:
            del self._groups[group_id]
