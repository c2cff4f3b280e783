"""How far an app's partitions have got, and whether one is stuck.

What lives here: committed offsets, ends, and the moment each partition last got on; pure, moments come in as seconds of any clock that
only grows. What does not: asking the brokers (`health`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from busway.types import TopicPartition


@dataclass(slots=True)
class _Watched:
    """One partition: `moved_s` when a record was finished last, `behind_s` since when it is seen to have work and does not get on."""

    moved_s: float
    committed: int | None = None
    end: int | None = None
    behind_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """One partition of the app, now.

    Attributes:
        partition: which.
        committed: the group's offset; None while it is not known.
        lag: records behind it; None while committed offset or end are not known.
        idle_s: seconds since a record was finished here, or since the partition came.
        stuck_s: seconds for which there was seen to be lag and nothing was finished; 0 if all is well.
    """

    partition: TopicPartition
    committed: int | None
    lag: int | None
    idle_s: float
    stuck_s: float


class Progress:
    """What is known of the partitions that this process has."""

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that the process has now."""
        return frozenset(self._watched)

    @property
    def unknown(self) -> frozenset[TopicPartition]:
        """Those whose committed offset was not told yet."""
        return frozenset(partition for partition, watched in self._watched.items() if watched.committed is None)

    def assigned(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """Partitions came."""
        for partition in partitions:
            self._watched[partition] = _Watched(now_s)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions went."""
        for partition in partitions:
            self._watched.pop(partition, None)

    def finished(self, partition: TopicPartition, now_s: float) -> None:
        """A record was finished, for good."""
        if (watched := self._watched.get(partition)) is not None:
            watched.moved_s, watched.behind_s = now_s, None

    def committed(self, offsets: Mapping[TopicPartition, int], now_s: float) -> None:
        """The group's offsets, as committed or as the brokers know them."""
        for partition, offset in offsets.items():
            if (watched := self._watched.get(partition)) is not None and watched.committed != offset:
                if watched.committed is not None:
                    watched.moved_s = now_s
                    watched.behind_s = None
                watched.committed = offset

    def ends(self, offsets: Mapping[TopicPartition, int], now_s: float) -> None:
        """The ends of partitions, as the brokers know them now; a partition counts as stuck from the first look that shows lag."""
        for partition, offset in offsets.items():
            if (watched := self._watched.get(partition)) is None:
                continue
            watched.end = offset
            if watched.committed is None or watched.committed >= offset:
                watched.behind_s = None
            elif watched.behind_s is None:
                watched.behind_s = now_s

    def all(self, now_s: float) -> list[PartitionProgress]:
        """Every partition, sorted."""
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
