"""The committed offsets of one partition of `__consumer_offsets`, and their memory.

What lives here: the table, its memory together with that of the groups, refusals. What does not: one offset
(`offsets`), those of open transactions (`pending_offsets`), members, with limits of their own (`memory_quota`), who may
commit (`shard`). Any client may commit for a new group, and offsets are kept for `offsets.retention.minutes`, seven
days.
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
"""Uncounted bytes of metadata: slightly longer metadata must not cause a refusal."""


def offset_bytes(partition: TopicPartition, metadata: str) -> int:
    """Return the approximate memory of an offset."""
    return OFFSET_BYTES + partition[0].__sizeof__() + max(metadata.__sizeof__() - _METADATA_FREE, 0)


class OffsetMemory:
    """The memory of all shards' offsets and groups.

    Attributes:
        used: current bytes; a replay may exceed the limit.
    """

    def __init__(self, limit: int = OFFSETS_BYTES_MAX) -> None:
        self._limit = limit
        self._warned = False
        self.used = 0

    @property
    def full(self) -> bool:
        """Whether the limit is exceeded."""
        return self.used > self._limit

    def check(self, more: int) -> None:
        """Check that there is memory for this many bytes more. The first refusal is logged.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, which clients retry.
        """
        if more <= 0 or self.used + more <= self._limit:
            self._warned = self._warned and self.used > self._limit * _WARNED_AGAIN_BELOW
            return
        if not self._warned:
            self._warned = True
            logger.warning(
                "new groups and offsets are refused: those that are there take %d MiB, which is as much as they may; delete groups that nobody "
                "needs, or lower offsets.retention.minutes",
                self._limit >> 20,
            )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups and committed offsets take as much as they may")


class CommittedOffsets(dict[str, dict[TopicPartition, CommittedOffset]]):
    """Committed offsets by group id and (topic, partition).

    Read as a dict, changed only by its methods. Its memory is released with the table.
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
        """Remove an offset."""
        table = self.get(group_id, {})
        self._change(-_held(partition, table))
        table.pop(partition, None)
        if not table:
            self.pop(group_id, None)

    def group_came(self) -> None:
        """Account for a new group."""
        self._change(GROUP_BYTES)

    def group_went(self) -> None:
        """Release the memory of a removed group."""
        self._change(-GROUP_BYTES)

    def check(self, group_id: str, offsets: NewOffsets, *, new_group: bool) -> None:
        """Check that there is memory for offsets and a new group.

        An offset that needs no more than its predecessor always fits.

        Raises:
            KafkaError: as `OffsetMemory.check`.
        """
        table = self.get(group_id, {})
        more = sum(
            max(offset_bytes(partition, offset.metadata) - _held(partition, table), 0)
            for partition, offset in offsets.items()
        )
        self._memory.check(more + GROUP_BYTES * new_group)

    def check_group(self) -> None:
        """Check that there is memory for a new group.

        Raises:
            KafkaError: as `check`.
        """
        self._memory.check(GROUP_BYTES)


def _held(partition: TopicPartition, table: Mapping[TopicPartition, CommittedOffset]) -> int:
    return _size(partition, table.get(partition))


def _size(partition: TopicPartition, offset: CommittedOffset | None) -> int:
    return 0 if offset is None else offset_bytes(partition, offset.metadata)
