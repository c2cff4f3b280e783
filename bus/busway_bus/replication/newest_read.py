"""The last small read for a follower, which the others repeat a moment later.

Here: one read, of at most a few KiB.
Not here: the read (`handlers.fetch`). A leader's log only grows in its leader epoch, so an offset has the same records
until the epoch or the end of the log changes.
"""

from busway_bus.replication.partition import Partition

NOTHING = bytearray()


class NewestRead:
    __slots__ = ("_partition", "_range", "_records")

    def __init__(self) -> None:
        self._partition: Partition | None = None
        self._range = (-1, -1, -1)
        self._records = NOTHING

    def get(self, partition: Partition, offset: int) -> bytearray:
        """Return what was read last if it was from `offset` and the log has not changed, else nothing."""
        if partition is not self._partition or offset < partition.log.start_offset:
            return NOTHING
        return self._records if self._range == _range(partition, offset) else NOTHING

    def note(self, partition: Partition, offset: int, records: bytearray) -> None:
        """Keep what was read from `offset` to the end of the log or to the reader's limit."""
        self._partition, self._range, self._records = partition, _range(partition, offset), records


def _range(partition: Partition, offset: int) -> tuple[int, int, int]:
    return partition.state.leader_epoch, offset, partition.log.end_offset
