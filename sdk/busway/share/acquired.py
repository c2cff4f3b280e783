"""Records of one partition in a ShareFetch response that this member acquired.

Not here: fetching (`leader`), acknowledging (`held`).

The batches also hold records that others have or had. An acquired offset may hold no record: it was compacted away, or
is a marker.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from busway.errors import DamagedData
from busway.types import Record, TopicPartition
from busway_protocol.errors import ProtocolError
from busway_protocol.messages.share_groups import AcquiredRecords
from busway_protocol.records.batch import BatchHeader, iter_batches, verify_crc
from busway_protocol.records.record import decode_records

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
Range = tuple[int, int, int]
"""First and last offset, and the acknowledgement of all between them."""


@dataclass(slots=True)
class Taken:
    records: list[Record] = field(default_factory=list)
    settled: list[Range] = field(default_factory=list)
    problem: DamagedData | None = None


class Acquired:
    """Records of one partition and response, not handed out yet.

    `acquired` has this member's offsets and their delivery counts; `until_s` is the end of their lock, in seconds of
    the event loop.
    """

    def __init__(
        self, partition: TopicPartition, data: memoryview, acquired: Iterable[AcquiredRecords], until_s: float
    ) -> None:
        self.partition = partition
        self.until_s = until_s
        self._ranges: deque[tuple[int, int, int]] = deque()
        last = -1
        for part in sorted(acquired, key=lambda acquired_range: acquired_range.first_offset):
            first = max(part.first_offset, last + 1)
            if first <= part.last_offset:
                self._ranges.append((first, part.last_offset, part.delivery_count))
                last = part.last_offset
        self._batches: deque[tuple[BatchHeader, memoryview]] = deque()
        self._records: deque[Record] = deque()
        self._broken: ProtocolError | None = None
        self._whole = True
        size = 0
        try:
            for header, batch in iter_batches(data):
                self._batches.append((header, batch))
                size += len(batch)
        except ProtocolError as problem:
            self._broken = problem
        self._whole = size == len(data)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(first, last) for first, last, _ in self._ranges]

    @property
    def is_empty(self) -> bool:
        return not (self._records or self._batches or self._ranges or self._broken)

    def take(self, limit: int, *, check_crcs: bool) -> Taken:
        """Return at most `limit` records; decode only their batches, and none behind a damaged one."""
        taken = Taken()
        while not self.is_empty and len(taken.records) < limit:
            if self._records:
                room = min(limit - len(taken.records), len(self._records))
                taken.records += [self._records.popleft() for _ in range(room)]
            elif self._batches:
                self._decode(taken, check_crcs=check_crcs)
            else:
                self._end(taken)
            if taken.problem is not None:
                break
        return taken

    def _decode(self, taken: Taken, *, check_crcs: bool) -> None:
        header, batch = self._batches.popleft()
        try:
            if check_crcs:
                verify_crc(batch, header)
            records = [] if header.is_control else decode_records(batch)
        except ProtocolError as problem:
            taken.settled += self._cut(header.base_offset - 1, GAP)
            rejected = self._cut(header.last_offset, REJECT)
            taken.settled += rejected
            taken.problem = self._damaged(f"at offset {header.base_offset}: {problem}", rejected, "rejected")
            return
        topic, partition_index = self.partition
        for offset, timestamp, timestamp_type, key, value, headers in records:
            taken.settled += self._cut(offset - 1, GAP)
            if self._ranges and self._ranges[0][0] == offset:
                first, last, count = self._ranges.popleft()
                if first < last:
                    self._ranges.appendleft((first + 1, last, count))
                self._records.append(
                    Record(
                        topic,
                        partition_index,
                        offset,
                        timestamp,
                        timestamp_type,
                        key,
                        value,
                        headers,
                        header.partition_leader_epoch,
                        count,
                    )
                )
        taken.settled += self._cut(header.last_offset, GAP)

    def _end(self, taken: Taken) -> None:
        problem, self._broken = self._broken, None
        if problem is None and self._whole:
            taken.settled += self._cut(None, GAP)
            return
        released = self._cut(None, RELEASE)
        taken.settled += released
        if problem is not None or released:
            taken.problem = self._damaged(str(problem or "a batch is cut off"), released, "released")

    def _cut(self, up_to: int | None, kind: int) -> list[Range]:
        result: list[Range] = []
        while self._ranges and (up_to is None or self._ranges[0][0] <= up_to):
            first, last, count = self._ranges.popleft()
            if up_to is not None and last > up_to:
                self._ranges.appendleft((up_to + 1, last, count))
                last = up_to
            result.append((first, last, kind))
        return result

    def _damaged(self, what: str, ranges: list[Range], done: str) -> DamagedData:
        offsets = ", ".join(f"{first} to {last}" for first, last, _ in ranges) or "none"
        return DamagedData(f"{self.partition.topic}-{self.partition.partition} {what}; {done}: offsets {offsets}")
