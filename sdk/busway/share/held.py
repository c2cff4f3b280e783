"""Held records and their pending acknowledgements.

Here: locks, and acknowledgements pending and in flight; pure except for futures.
Not here: sending (`leader`).

A leader accepts all acknowledgements of a partition in a request, or none. So renewals, which a group may refuse, are
sent separately; expired locks are left out; refused acknowledgements are sent again in halves, until only the wrong
ones are refused.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from busway.errors import AcknowledgementFailed
from busway.share.acquired import RENEW, Range
from busway.types import TopicPartition
from busway_protocol.messages.share_groups import AcknowledgementBatch


@dataclass(slots=True, eq=False)
class PendingAcknowledgement:
    """Acknowledgement of a range of offsets. `until_s` is the end of their lock, in seconds of the event loop.

    `result` is None when the leader has taken it; else the error.
    """

    first: int
    last: int
    kind: int
    until_s: float
    result: "asyncio.Future[None]"

    def done(self, problem: Exception | None) -> None:
        if self.result.done():
            return
        if problem is None:
            self.result.set_result(None)
        else:
            self.result.set_exception(problem)
            self.result.exception()  # mark as retrieved: the records are delivered again anyway


@dataclass(slots=True, eq=False)
class AcknowledgementSet:
    """Acknowledgements of one partition and request: only renewals, or none."""

    words: dict[int, PendingAcknowledgement] = field(default_factory=dict)

    @property
    def renews(self) -> bool:
        return any(word.kind == RENEW for word in self.words.values())

    def batches(self) -> list[AcknowledgementBatch]:
        result: list[AcknowledgementBatch] = []
        for _, word in sorted(self.words.items()):
            before = result[-1] if result else None
            if before is not None and before.last_offset + 1 == word.first and before.acknowledge_types == [word.kind]:
                before.last_offset = word.last
            else:
                result.append(
                    AcknowledgementBatch(first_offset=word.first, last_offset=word.last, acknowledge_types=[word.kind])
                )
        return result

    def halves(self) -> "list[AcknowledgementSet]":
        words = sorted(self.words.items())
        middle = (len(words) + 1) // 2
        return [AcknowledgementSet(dict(part)) for part in (words[:middle], words[middle:]) if part]

    def done(self, problem: Exception | None) -> None:
        for word in self.words.values():
            word.done(problem)


class Lane:
    """Pending acknowledgements of one partition: parts to send separately, then all others."""

    __slots__ = ("_apart", "_together")

    def __init__(self) -> None:
        self._together = AcknowledgementSet()
        self._apart: deque[AcknowledgementSet] = deque()

    def __bool__(self) -> bool:
        return bool(self._together.words) or self.is_torn

    @property
    def is_torn(self) -> bool:
        return any(part.words for part in self._apart)

    def words(self) -> list[PendingAcknowledgement]:
        return [word for part in (*self._apart, self._together) for word in part.words.values()]

    def find(self, offset: int) -> PendingAcknowledgement | None:
        return next((part.words[offset] for part in (*self._apart, self._together) if offset in part.words), None)

    def add(self, word: PendingAcknowledgement) -> None:
        self._together.words[word.first] = word

    def drop(self, offset: int) -> PendingAcknowledgement | None:
        for part in (*self._apart, self._together):
            if (word := part.words.pop(offset, None)) is not None:
                return word
        return None

    def take_out(self, is_meant: Callable[[PendingAcknowledgement], bool]) -> list[PendingAcknowledgement]:
        removed: list[PendingAcknowledgement] = []
        for part in (*self._apart, self._together):
            meant = [first for first, word in part.words.items() if is_meant(word)]
            removed += [part.words.pop(first) for first in meant]
        return removed

    def tear(self, refused: AcknowledgementSet) -> None:
        self._apart.extend(refused.halves())

    def take(self) -> AcknowledgementSet:
        while self._apart:
            if (part := self._apart.popleft()).words:
                return part
        part, self._together = self._together, AcknowledgementSet()
        return part


class HeldPartition:
    """Records of one partition held in one session with its leader.

    `until_s` has the end of each offset's lock, in seconds of the event loop; `final` the pending acknowledgements
    except renewals.
    """

    __slots__ = ("final", "partition", "renewals", "until_s")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition: TopicPartition = partition
        self.until_s: dict[int, float] = {}
        self.final: Lane = Lane()
        self.renewals: Lane = Lane()

    def hand_out(self, offsets: Iterable[int], until_s: float) -> None:
        for offset in offsets:
            self.until_s[offset] = until_s

    def delivered(self, ranges: Sequence[tuple[int, int]]) -> None:
        firsts = [first for first, _ in ranges]

        def is_in(first: int, last: int) -> bool:
            at = bisect_right(firsts, last) - 1
            return at >= 0 and ranges[at][1] >= first

        for offset in [offset for offset in self.until_s if is_in(offset, offset)]:
            del self.until_s[offset]
        for lane in (self.renewals, self.final):
            for word in lane.take_out(lambda word: is_in(word.first, word.last)):
                word.done(self._ended(word.first))

    def _ended(self, offset: int) -> AcknowledgementFailed:
        name = f"{self.partition.topic}-{self.partition.partition}"
        return AcknowledgementFailed(f"{name} offset {offset}: its lock has ended, it comes again")

    def expire(self, now_s: float) -> None:
        """Drop expired locks, so that memory is bounded by what brokers lock."""
        for offset in [offset for offset, until_s in self.until_s.items() if until_s <= now_s]:
            del self.until_s[offset]

    def acknowledge(self, offset: int, kind: int) -> "asyncio.Future[None]":
        renewal = self.renewals.find(offset)
        if kind == RENEW:
            if renewal is None:
                renewal = self._word(offset, offset, kind, self.until_s[offset])
                self.renewals.add(renewal)
            return renewal.result
        word = self._word(offset, offset, kind, self.until_s.pop(offset))
        if renewal is not None:  # the last acknowledgement counts, also for the waiter of the renewal
            self.renewals.drop(offset)
            word.result = renewal.result
        self.final.add(word)
        return word.result

    def settle(self, ranges: Iterable[Range], until_s: float) -> None:
        for first, last, kind in ranges:
            self.final.add(self._word(first, last, kind, until_s))

    def _word(self, first: int, last: int, kind: int, until_s: float) -> PendingAcknowledgement:
        return PendingAcknowledgement(first, last, kind, until_s, asyncio.get_running_loop().create_future())

    def take(self, now_s: float, *, renewals: bool) -> AcknowledgementSet | None:
        """Remove and return the next acknowledgements to send; fail those with expired locks."""
        lane = self.renewals if renewals else self.final
        while lane:
            part = lane.take()
            for offset, word in list(part.words.items()):
                if word.until_s <= now_s:
                    del part.words[offset]
                    word.done(self._ended(offset))
            if part.words:
                return part
        return None

    def renewed(self, accepted: AcknowledgementSet, until_s: float) -> None:
        for offset in accepted.words:
            if offset in self.until_s:
                self.until_s[offset] = until_s
            elif (word := self.final.find(offset)) is not None:
                word.until_s = until_s

    def refused(self, part: AcknowledgementSet, problem: AcknowledgementFailed) -> None:
        """Send refused acknowledgements again in parts; fail a single one."""
        if part.renews:
            for offset in [offset for offset in part.words if offset not in self.until_s]:
                part.words.pop(offset).done(problem)
        if len(part.words) > 1:
            (self.renewals if part.renews else self.final).tear(part)
        else:
            part.done(problem)

    def lose(self, problem: AcknowledgementFailed) -> None:
        for word in (*self.renewals.words(), *self.final.words()):
            word.done(problem)
        self.renewals, self.final = Lane(), Lane()
        self.until_s.clear()
