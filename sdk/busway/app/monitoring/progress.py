"""Progress of an app's partitions, and which are stuck.

Here: committed offsets, ends, and times of last progress; pure, in seconds of any monotonic clock.
Not here: querying the brokers (`health`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from busway.types import TopicPartition


@dataclass(slots=True)
class _Watched:
    """State of one partition; `behind_s`: since when it has had lag without progress."""

    moved_s: float
    committed: int | None = None
    end: int | None = None
    behind_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Current state of one partition of the app.

    Attributes:
        committed: the group's offset; None while it is unknown.
        lag: records behind it; None while committed offset or end are unknown.
        idle_s: seconds since a record was finished, or since the partition was assigned.
        stuck_s: seconds with lag and without a finished record; 0 if all is well.
    """

    partition: TopicPartition
    committed: int | None
    lag: int | None
    idle_s: float
    stuck_s: float


class Progress:
    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._watched)

    @property
    def unknown(self) -> frozenset[TopicPartition]:
        return frozenset(partition for partition, watched in self._watched.items() if watched.committed is None)

    def assigned(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        for partition in partitions:
            self._watched[partition] = _Watched(now_s)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._watched.pop(partition, None)

    def finished(self, partition: TopicPartition, now_s: float) -> None:
        if (watched := self._watched.get(partition)) is not None:
            watched.moved_s, watched.behind_s = now_s, None

    def committed(self, offsets: Mapping[TopicPartition, int], now_s: float) -> None:
        for partition, offset in offsets.items():
            if (watched := self._watched.get(partition)) is not None and watched.committed != offset:
                if watched.committed is not None:
                    watched.moved_s = now_s
                    watched.behind_s = None
                watched.committed = offset

    def ends(self, offsets: Mapping[TopicPartition, int], now_s: float) -> None:
        """Note end offsets; a partition is stuck from the first look that shows lag."""
        for partition, offset in offsets.items():
            if (watched := self._watched.get(partition)) is None:
                continue
            watched.end = offset
            if watched.committed is None or watched.committed >= offset:
                watched.behind_s = None
            elif watched.behind_s is None:
                watched.behind_s = now_s

    def all(self, now_s: float) -> list[PartitionProgress]:
        return [
            PartitionProgress(
                partition=partition,
                committed=watched.committed,
                lag=max(watched.end - watched.committed, 0)
                if watched.committed is not None and watched.end is not None
                else None,
                idle_s=now_s - watched.moved_s,
                stuck_s=now_s - watched.behind_s if watched.behind_s is not None else 0.0,
            )
            for partition, watched in sorted(self._watched.items())
        ]
