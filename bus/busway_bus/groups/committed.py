"""The committed offsets of one partition of `__consumer_offsets`, and their memory.

Here: the table, its memory with that of the groups, refusals.
Not here: open transactions (`pending_offsets`), members' memory (`memory_quota`), permission to commit (`shard`).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from busway_bus.groups.offsets import CommittedOffset, NewOffsets, TopicPartition
from busway_bus.kernel.limits import GROUP_BYTES, OFFSET_BYTES, OFFSETS_BYTES_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.groups")
_WARNED_AGAIN_BELOW: Final = 0.9
"""Fraction of the limit below which the next refusal is logged again."""
_METADATA_FREE: Final = 128
"""Uncounted bytes of metadata."""


def offset_bytes(partition: TopicPartition, metadata: str) -> int:
    return OFFSET_BYTES + partition[0].__sizeof__() + max(metadata.__sizeof__() - _METADATA_FREE, 0)


class OffsetMemory:
    """The memory of all shards' offsets and groups.

    Attributes:
        used: a replay may exceed the limit.
    """

    def __init__(self, limit: int = OFFSETS_BYTES_MAX) -> None:
        self._limit = limit
        self._warned = False
        self.used = 0

    @property
    def full(self) -> bool:
        return self.used > self._limit

    def check(self, more: int) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE without memory; log the first refusal."""
        if more <= 0 or self.used + more <= self._limit:
            self._warned = self._warned and self.used > self._limit * _WARNED_AGAIN_BELOW
            return
        if not self._warned:
            self._warned = True
            logger.warning(
                "new groups and offsets are refused: the existing ones take %d MiB, which is the limit; delete unused "
                "groups, or lower offsets.retention.minutes",
                self._limit >> 20,
            )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups and committed offsets take as much as they may")


class CommittedOffsets(dict[str, dict[TopicPartition, CommittedOffset]]):
    """Committed offsets by group id and (topic, partition).

    Change it only by its methods. Its memory is released with the table.
    """

    def __init__(self, memory: OffsetMemory) -> None:
        super().__init__()
        self._memory = memory
        self._held = 0

    def _change(self, by: int) -> None:
        self._held += by
        self._memory.used += by

    def __del__(self) -> None:
        self._memory.used -= self._held

    def put(self, group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        """Store offsets; a replay may exceed the limit."""
        table = self.setdefault(group_id, {})
        more = 0
        for partition, offset in offsets:
            before = table.get(partition)
            if before is None or before.metadata != offset.metadata:
                more += offset_bytes(partition, offset.metadata) - _size(partition, before)
            table[partition] = offset
        self._change(more)

    def forget(self, group_id: str, partition: TopicPartition) -> None:
        table = self.get(group_id, {})
        self._change(-_held(partition, table))
        table.pop(partition, None)
        if not table:
            self.pop(group_id, None)

    def group_added(self) -> None:
        self._change(GROUP_BYTES)

    def group_removed(self) -> None:
        self._change(-GROUP_BYTES)

    def check(self, group_id: str, offsets: NewOffsets, *, new_group: bool) -> None:
        """Check memory for offsets and a new group, as `OffsetMemory.check`.

        An offset no larger than its predecessor always fits.
        """
        table = self.get(group_id, {})
        more = sum(
            max(offset_bytes(partition, offset.metadata) - _held(partition, table), 0)
            for partition, offset in offsets.items()
        )
        self._memory.check(more + GROUP_BYTES * new_group)

    def check_group(self) -> None:
        self._memory.check(GROUP_BYTES)


def _held(partition: TopicPartition, table: Mapping[TopicPartition, CommittedOffset]) -> int:
    return _size(partition, table.get(partition))


def _size(partition: TopicPartition, offset: CommittedOffset | None) -> int:
    return 0 if offset is None else offset_bytes(partition, offset.metadata)
