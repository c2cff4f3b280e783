"""State of a consumer's partitions.

Not here: fetching (`fetcher`).

A partition that was revoked and assigned again is a new object: responses for the old one are dropped.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import UUID

from busway.net.clock import REAL_TIME
from busway.types import Record, TopicPartition

_generations = count(1)
_LEADER_S: Final = 10.0


@dataclass(slots=True, eq=False)
class FetchPosition:
    """One assigned partition.

    Attributes:
        fetched_epoch: leader epoch of the last fetched batch; -1 without one.
        leader_epoch: of the leader that is known; -1 if the metadata has none. A broker with another epoch refuses the fetch.
        topic_id: of the position, as in the metadata at the first fetch; see `Fetcher`.
        chunks: fetched batches, not decoded.
        records: decoded, not handed out.
        aborted: heap of (first offset, producer id) of aborted transactions not reached yet.
        aborted_producers: with an aborted transaction at this point of the log.
        reset: where to look a missing position up: earliest, latest or committed.
        held: its listener has not returned yet, so nothing is handed out.
        gone: the offset missing in the log that caused a lookup.
        reset_at: position found by a reset; None after a commit or seek.
        uncommitted_reset: that position is not in `Uncommitted` yet.
        replica: preferred by the leader to fetch from (KIP-392); None is the leader.
        replica_until: end of that preference, in the event loop's time.
        leader_until: no replica is used before this time: the last one has failed.
        retry_at: no request before this time of the event loop.
        tenure: constant until the partition is revoked.
    """

    partition: TopicPartition
    reset: str
    position: int | None = None
    fetch_position: int = -1
    fetched_epoch: int = -1
    leader_epoch: int = -1
    topic_id: UUID | None = None
    paused: bool = False
    held: bool = False
    chunks: deque[memoryview] = field(default_factory=deque)
    records: deque[Record] = field(default_factory=deque)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    aborted_producers: set[int] = field(default_factory=set)
    high_watermark: int = -1
    gone: int | None = None
    reset_at: int | None = None
    uncommitted_reset: bool = False
    placing: bool = False
    replica: int | None = None
    replica_until: float = 0.0
    leader_until: float = 0.0
    retry_at: float = 0.0
    number: int = field(default_factory=lambda: next(_generations))
    tenure: int = field(default_factory=lambda: next(_generations))

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    def prefer(self, replica: int, lease_s: float) -> None:
        """Fetch from the replica that the leader named, until the lease ends."""
        if replica != self.replica:
            self.replica, self.replica_until = replica, REAL_TIME.now_s() + lease_s

    def avoid_replica(self) -> None:
        """Fetch from the leader for a while if the replica was used: it would name the same again."""
        if self.replica is not None:
            self.replica, self.leader_until = None, REAL_TIME.now_s() + _LEADER_S

    def is_replica_due(self) -> bool:
        """Return whether the leader has to name the replica again."""
        return REAL_TIME.now_s() >= self.replica_until

    def seek(self, offset: int) -> None:
        self.position = self.fetch_position = offset
        self.gone = self.reset_at = None
        self.uncommitted_reset = False
        self.forget()

    def reset_to(self, offset: int) -> None:
        """Continue at the result of a reset, committed like any other position."""
        self.seek(offset)
        self.reset_at, self.uncommitted_reset = offset, True

    def forget(self) -> None:
        self.chunks.clear()
        self.records.clear()
        self.aborted.clear()
        self.aborted_producers.clear()
        self.fetched_epoch, self.topic_id = -1, None
        self.number = next(_generations)

    @property
    def buffered(self) -> bool:
        return bool(self.records or self.chunks)
