"""Records that a member holds, and what is to be told about them.

What lives here: what was handed out and until when it is locked; acknowledgements that wait to be sent, and those on their way, as
batches of the wire; pure but for the futures of who waits. What does not: sending them (`leader`).

A leader takes all that one request tells of a partition, or nothing of it. So renewals, which a group may refuse, go apart from what is
final; what is locked no more is left out; and what was refused together is told again in halves, until only what is wrong is refused.
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
class Word:
    """What became of an offset, or of all from the first to the last.

    Attributes:
        until_s: when their lock ends, in seconds of the event loop.
        result: None when the leader has taken it; else why not.
    """

    first: int
    last: int
    kind: int
    until_s: float
    result: "asyncio.Future[None]"

    def done(self, problem: Exception | None) -> None:
        """The leader has answered, or will not."""
        if self.result.done():
            return
        if problem is None:
            self.result.set_result(None)
        else:
            self.result.set_exception(problem)
            self.result.exception()  # who does not ask need not be told: the records come again


@dataclass(slots=True, eq=False)
class Told:
    """Acknowledgements of one partition that go out together, by their first offsets: all of them renewals, or none."""

    words: dict[int, Word] = field(default_factory=dict)

    @property
    def renews(self) -> bool:
        """Whether locks are to be prolonged."""
        return any(word.kind == RENEW for word in self.words.values())

    def batches(self) -> list[AcknowledgementBatch]:
        """As the wire has them: in order, and never two for one offset."""
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

    def halves(self) -> "list[Told]":
        """The same in two, by offsets."""
        words = sorted(self.words.items())
        middle = (len(words) + 1) // 2
        return [Told(dict(part)) for part in (words[:middle], words[middle:]) if part]

    def done(self, problem: Exception | None) -> None:
        """The leader has answered, or will not."""
        for word in self.words.values():
            word.done(problem)


class Lane:
    """Acknowledgements of one partition that wait: some that are to go out apart, and then all others together."""

    __slots__ = ("_apart", "_together")

    def __init__(self) -> None:
        self._together = Told()
        self._apart: deque[Told] = deque()

    def __bool__(self) -> bool:
        return bool(self._together.words) or self.is_torn

    @property
    def is_torn(self) -> bool:
        """Whether some were refused together, and go out again."""
        return any(told.words for told in self._apart)

    def words(self) -> list[Word]:
        """All of them."""
        return [word for told in (*self._apart, self._together) for word in told.words.values()]

    def find(self, offset: int) -> Word | None:
        """What waits to be told of an offset."""
        return next((told.words[offset] for told in (*self._apart, self._together) if offset in told.words), None)

    def add(self, word: Word) -> None:
        """To be told with the others."""
        self._together.words[word.first] = word

    def drop(self, offset: int) -> Word | None:
        """Not to be told any more."""
        for told in (*self._apart, self._together):
            if (word := told.words.pop(offset, None)) is not None:
                return word
        return None

    def take_out(self, is_meant: Callable[[Word], bool]) -> list[Word]:
        """Remove the words that are meant, and return them."""
        found: list[Word] = []
        for told in (*self._apart, self._together):
            meant = [first for first, word in told.words.items() if is_meant(word)]
            found += [told.words.pop(first) for first in meant]
        return found

    def tear(self, told: Told) -> None:
        """They were refused together."""
        self._apart.extend(told.halves())

    def take(self) -> Told:
        """What goes out next; empty where there is nothing."""
        while self._apart:
            if (told := self._apart.popleft()).words:
                return told
        told, self._together = self._together, Told()
        return told


class HeldPartition:
    """What a member holds of one partition, from one session with its leader.

    Attributes:
        until_s: for each offset that was handed out, when its lock ends, in seconds of the event loop.
        final: what became of records.
        renewals: locks to be prolonged.
    """

    __slots__ = ("final", "partition", "renewals", "until_s")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.until_s: dict[int, float] = {}
        self.final = Lane()
        self.renewals = Lane()

    def hand_out(self, offsets: Iterable[int], until_s: float) -> None:
        """Records are handed out now."""
        for offset in offsets:
            self.until_s[offset] = until_s

    def delivered(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Forget earlier locks on offsets that the leader delivers again; acknowledgements that wait for these fail.

        Args:
            ranges: first and last offsets, ascending.
        """
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
        """Forget what is not held any more, so that this never grows beyond what brokers lock."""
        for offset in [offset for offset, until_s in self.until_s.items() if until_s <= now_s]:
            del self.until_s[offset]

    def acknowledge(self, offset: int, kind: int) -> "asyncio.Future[None]":
        """Something became of a record; one whose lock is renewed is held on."""
        renewal = self.renewals.find(offset)
        if kind == RENEW:
            if renewal is None:
                renewal = self._word(offset, offset, kind, self.until_s[offset])
                self.renewals.add(renewal)
            return renewal.result
        word = self._word(offset, offset, kind, self.until_s.pop(offset))
        if renewal is not None:  # the last word counts, for whoever waits for the one before too
            self.renewals.drop(offset)
            word.result = renewal.result
        self.final.add(word)
        return word.result

    def settle(self, ranges: Iterable[Range], until_s: float) -> None:
        """Offsets that nobody handles."""
        for first, last, kind in ranges:
            self.final.add(self._word(first, last, kind, until_s))

    def _word(self, first: int, last: int, kind: int, until_s: float) -> Word:
        return Word(first, last, kind, until_s, asyncio.get_running_loop().create_future())

    def take(self, now_s: float, *, renewals: bool) -> Told | None:
        """What goes out next, which is then on its way; what is locked no more never does, and fails."""
        lane = self.renewals if renewals else self.final
        while lane:
            told = lane.take()
            for offset, word in list(told.words.items()):
                if word.until_s <= now_s:
                    del told.words[offset]
                    word.done(self._ended(offset))
            if told.words:
                return told
        return None

    def renewed(self, told: Told, until_s: float) -> None:
        """The leader has taken it: locks are prolonged."""
        for offset in told.words:
            if offset in self.until_s:
                self.until_s[offset] = until_s
            elif (word := self.final.find(offset)) is not None:
                word.until_s = until_s

    def refused(self, told: Told, problem: AcknowledgementFailed) -> None:
        """The leader has taken none of it, perhaps for the sake of one: the others are told again."""
        if told.renews:
            for offset in [offset for offset in told.words if offset not in self.until_s]:
                told.words.pop(offset).done(problem)
        if len(told.words) > 1:
            (self.renewals if told.renews else self.final).tear(told)
        else:
            told.done(problem)

    def lose(self, problem: AcknowledgementFailed) -> None:
        """Nothing of it is held any more."""
        for word in (*self.renewals.words(), *self.final.words()):
            word.done(problem)
        self.renewals, self.final = Lane(), Lane()
        self.until_s.clear()
