"""The committed offsets of one partition of `__consumer_offsets`, and what they and the groups themselves take.

What lives here: the table with its count, and what is refused where there is no room. What does not: one offset (`offsets`), those of open
transactions (`pending_offsets`), members, which have bounds of their own (`memory_quota`), who may commit (`shard`). Anybody may commit for groups that are
not there, and what is committed is kept for `offsets.retention.minutes`, seven days.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from busway_bus.groups.offsets import CommittedOffset, NewOffset, Place
from busway_bus.kernel.limits import GROUP_BYTES, OFFSET_BYTES, OFFSETS_BYTES_MAX
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.groups")
_TOLD_AGAIN_BELOW: Final = 0.9
"""Part of the limit below which the next refusal is told in the log again."""
_METADATA_FREE: Final = 128
"""What metadata may take without being counted, so that an offset is not refused because its metadata is a little longer than the last."""


def offset_bytes(place: Place, metadata: str) -> int:
    """What an offset takes, about."""
    return OFFSET_BYTES + place[0].__sizeof__() + max(metadata.__sizeof__() - _METADATA_FREE, 0)


class OffsetMemory:
    """What those of all shards take together, with their groups.

    Attributes:
        used: now, in bytes; a log that is read may bring more than would be let in.
    """

    def __init__(self, limit: int = OFFSETS_BYTES_MAX) -> None:
        self._limit = limit
        self._told = False
        self.used = 0

    @property
    def full(self) -> bool:
        """Whether nothing more is let in."""
        return self.used > self._limit

    def check(self, more: int) -> None:
        """Whether there is room for so many bytes more; the log has a line when there is none for the first time.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, upon which clients come again.
        """
        if more <= 0 or self.used + more <= self._limit:
            self._told = self._told and self.used > self._limit * _TOLD_AGAIN_BELOW
            return
        if not self._told:
            self._told = True
            logger.warning(
                "new groups and offsets are refused: those that are there take %d MiB, which is as much as they may; delete groups that nobody "
                "needs, or lower offsets.retention.minutes",
                self._limit >> 20,
            )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups and committed offsets take as much as they may")


class CommittedOffsets(dict[str, dict[Place, CommittedOffset]]):
    """By group id and (topic, partition). To be read as a dict, and changed by its own methods alone.

    What they take is given back when the table is let go, however that comes about.
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

    def put(self, group_id: str, offsets: Iterable[tuple[Place, CommittedOffset]]) -> None:
        """They are in force; a log that is read may bring more than would be let in."""
        table = self.setdefault(group_id, {})
        more = 0
        for place, offset in offsets:
            before = table.get(place)
            if before is None or before.metadata != offset.metadata:
                more += offset_bytes(place, offset.metadata) - _size(place, before)
            table[place] = offset
        self._change(more)

    def forget(self, group_id: str, place: Place) -> None:
        """There is none any more."""
        table = self.get(group_id, {})
        self._change(-_held(place, table))
        table.pop(place, None)
        if not table:
            self.pop(group_id, None)

    def group_came(self) -> None:
        """There is one group more."""
        self._change(GROUP_BYTES)

    def group_went(self) -> None:
        """There is one group less."""
        self._change(-GROUP_BYTES)

    def check(self, group_id: str, offsets: Mapping[Place, NewOffset], *, new_group: bool) -> None:
        """Whether there is room for offsets that are committed, and for their group where that is new. An offset that takes no more than the
        one before it always has.

        Raises:
            KafkaError: as `OffsetMemory.check`.
        """
        table = self.get(group_id, {})
        more = sum(
            max(offset_bytes(place, offset.metadata) - _held(place, table), 0) for place, offset in offsets.items()
        )
        self._memory.check(more + GROUP_BYTES * new_group)

    def check_group(self) -> None:
        """Whether there is room for one more group.

        Raises:
            KafkaError: as `check`.
        """
        self._memory.check(GROUP_BYTES)


def _held(place: Place, table: Mapping[Place, CommittedOffset]) -> int:
    return _size(place, table.get(place))


def _size(place: Place, offset: CommittedOffset | None) -> int:
    return 0 if offset is None else offset_bytes(place, offset.metadata)
