"""Records that a member holds, and what is to be told about them.

What lives here: what was handed out and until when it is locked; acknowledgements that wait to be sent, and those on their way, as
batches of the wire; pure but for the futures of who waits. What does not: sending them (`leader`).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from busway.share.acquired import RENEW, Range
from busway_protocol.messages.share_groups import AcknowledgementBatch


@dataclass(slots=True, eq=False)
class Told:
    """Acknowledgements of one partition that go out together.

    Attributes:
        kinds: for each offset what became of it.
        ranges: for many offsets at once.
        result: None when the leader has taken them; else why not.
    """

    result: "asyncio.Future[None]"
    kinds: dict[int, int] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)

    @property
    def renews(self) -> bool:
        """Whether a lock is among them that is to be prolonged."""
        return RENEW in self.kinds.values()

    def batches(self) -> list[AcknowledgementBatch]:
        """As the wire has them: in order, and never two for one offset."""
        result: list[AcknowledgementBatch] = []
        parts = sorted([*((offset, offset, kind) for offset, kind in self.kinds.items()), *self.ranges])
        for first, last, kind in parts:
            before = result[-1] if result else None
            if before is not None and before.last_offset + 1 == first and before.acknowledge_types == [kind]:
                before.last_offset = last
            else:
                result.append(AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind]))
        return result

    def done(self, problem: Exception | None) -> None:
        """The leader has answered, or will not."""
        if self.result.done():
            return
        if problem is None:
            self.result.set_result(None)
        else:
            self.result.set_exception(problem)
            self.result.exception()  # who does not ask need not be told: the records come again


class HeldPartition:
    """What a member holds of one partition, from one session with its leader.

    Attributes:
        until_s: for each offset that was handed out, when its lock ends, in seconds of the event loop.
        waiting: what is to be told; None while there is nothing.
    """

    __slots__ = ("until_s", "waiting")

    def __init__(self) -> None:
        self.until_s: dict[int, float] = {}
        self.waiting: Told | None = None

    def hand_out(self, offsets: Iterable[int], until_s: float) -> None:
        """Records are handed out now."""
        for offset in offsets:
            self.until_s[offset] = until_s

    def expire(self, now_s: float) -> None:
        """Forget what is not held any more, so that this never grows beyond what brokers lock."""
        for offset in [offset for offset, until_s in self.until_s.items() if until_s <= now_s]:
            del self.until_s[offset]

    def _open(self) -> Told:
        if self.waiting is None:
            self.waiting = Told(asyncio.get_running_loop().create_future())
        return self.waiting

    def acknowledge(self, offset: int, kind: int) -> "asyncio.Future[None]":
        """Something became of a record; one whose lock is renewed is held on."""
        if kind != RENEW:
            del self.until_s[offset]
        told = self._open()
        told.kinds[offset] = kind
        return told.result

    def settle(self, ranges: Iterable[Range]) -> None:
        """Offsets that nobody handles."""
        if found := list(ranges):
            self._open().ranges += found

    def again(self, kinds: dict[int, int], ranges: Iterable[Range]) -> None:
        """What is to be told after all; nobody waits for it."""
        told = self._open()
        told.kinds = {**kinds, **told.kinds}
        told.ranges += ranges

    def take(self) -> Told | None:
        """What is to be told, which is then on its way."""
        told, self.waiting = self.waiting, None
        return told

    def renewed(self, told: Told, until_s: float) -> None:
        """The leader has taken it: locks that were to be prolonged are."""
        for offset, kind in told.kinds.items():
            if kind == RENEW and offset in self.until_s:
                self.until_s[offset] = until_s
