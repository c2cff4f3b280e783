"""What a consumer reads and where it is.

What lives here: assigned partitions with position, buffer and pause, as plain state. What does not: fetching (`fetcher`) and
membership (`group`). A partition that was given back and given again is a new one: answers for the old one are dropped.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from busway.types import Record, TopicPartition

_generations = count(1)


@dataclass(slots=True, eq=False)
class Assigned:
    """One partition in this consumer's hands.

    Attributes:
        position: offset of the next record to hand out, None until it is known.
        fetch_position: offset of the next record to fetch.
        fetched_epoch: leader epoch of the record before it, as fetched; -1 where nothing was fetched yet.
        topic_id: the topic that its position is of, as far as the metadata knew when it was fetched first; see `Fetcher`.
        chunks: record batches that were fetched and not decoded yet.
        records: decoded records that were not handed out yet.
        aborted: a heap of aborted transactions, first offset and producer id, that were named and not begun yet.
        aborted_producers: those whose transaction, here in the log, is an aborted one.
        reset: where to look the position up when there is none: earliest, latest or committed.
        held: its listener has not been told yet, so nothing is handed out.
        gone: the offset that is not in the log, which is why a position is looked up.
        reset_at: the position that a reset found; None where a commit or a seek gave it.
        uncommitted_reset: that position has not been handed to whoever commits yet.
        placing: a position is being looked up.
        retry_at: nothing is asked about it before this time of the event loop.
        tenure: stays the same until the partition is given back.
    """

    partition: TopicPartition
    reset: str
    position: int | None = None
    fetch_position: int = -1
    fetched_epoch: int = -1
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
    retry_at: float = 0.0
    number: int = field(default_factory=lambda: next(_generations))
    tenure: int = field(default_factory=lambda: next(_generations))

    @property
    def name(self) -> str:
        """As messages show it."""
        return f"{self.partition.topic}-{self.partition.partition}"

    def seek(self, offset: int) -> None:
        """Go on at `offset`; what was fetched is forgotten."""
        self.position = self.fetch_position = offset
        self.gone = self.reset_at = None
        self.uncommitted_reset = False
        self.forget()

    def reset_to(self, offset: int) -> None:
        """Go on at `offset`, which a reset found: it is to be committed like any other position."""
        self.seek(offset)
        self.reset_at, self.uncommitted_reset = offset, True

    def forget(self) -> None:
        """Drop what was fetched."""
        self.chunks.clear()
        self.records.clear()
        self.aborted.clear()
        self.aborted_producers.clear()
        self.fetched_epoch, self.topic_id = -1, None
        self.number = next(_generations)

    @property
    def buffered(self) -> bool:
        """Whether records wait here."""
        return bool(self.records or self.chunks)
