"""Holds messages until a crash could not make them untrue.

Here: the order of writes and of the messages that rest on them.
Not here: their content.
"""

from collections import deque
from collections.abc import Callable, Iterable

from busway_bus.quorum.ready import LogWrite, Proposal, QuorumResponse, Ready, Reply, Send
from busway_bus.quorum.states import Election


class Outbox:
    """Effects that are not released yet.

    Attributes:
        number: of the newest `Ready` with something to write.
        persisted: the number up to which all is on disk.
    """

    __slots__ = (
        "_appends",
        "_apply",
        "_committed",
        "_discarded",
        "_ends",
        "_held",
        "_nothing",
        "_save",
        "_sends",
        "number",
        "persisted",
    )

    def __init__(self) -> None:
        self.number = self.persisted = 0
        self._nothing = Ready(number=0)
        """What most messages and ticks result in."""
        self._held: deque[tuple[int, Send | Reply]] = deque()
        self._ends: deque[tuple[int, int]] = deque()
        self._save: Election | None = None
        self._appends: list[LogWrite] = []
        self._sends: list[Send | Reply] = []
        self._apply: int | None = None
        self._committed: list[Proposal] = []
        self._discarded: list[Proposal] = []

    def save(self, election: Election) -> None:
        self._save = election

    def append(self, write: LogWrite) -> None:
        """Change the log. Pending flushes end at a truncation; an installed snapshot leaves nothing of them."""
        cut = write.truncate_to if write.install is None else 0
        if cut is not None:
            self._ends = deque((number, min(end, cut)) for number, end in self._ends)
        self._appends.append(write)

    def send(self, message: Send | Reply) -> None:
        """Send a message once all earlier decisions are on disk.

        It replaces a held request to the same node: one request is in flight at a time.
        """
        if isinstance(message, Send) and self._held:
            self._held = deque(
                (number, held) for number, held in self._held if not isinstance(held, Send) or held.to != message.to
            )
        self._sends.append(message)

    def apply(self, high_watermark: int, committed: Iterable[Proposal] = ()) -> None:
        self._apply = high_watermark
        self._committed.extend(committed)

    def discard(self, proposals: Iterable[Proposal]) -> None:
        self._discarded.extend(proposals)

    def replace_reads(self, instead: Callable[[Reply], QuorumResponse]) -> None:
        """Replace responses that would read the log, after leadership was lost.

        The new ones wait for what they rest on.
        """
        waiting = [message for _, message in self._held] + self._sends
        reads = {id(message) for message in waiting if isinstance(message, Reply) and message.read is not None}
        if not reads:
            return
        self._held = deque((number, message) for number, message in self._held if id(message) not in reads)
        self._sends = [message for message in self._sends if id(message) not in reads]
        for message in waiting:
            if isinstance(message, Reply) and message.read is not None:
                self._sends.append(Reply(waiter=message.waiter, body=instead(message)))

    def flushed_by(self, number: int) -> int | None:
        """Return the log's end on disk with this number, None if unchanged."""
        self.persisted = max(self.persisted, number)
        end = None
        while self._ends and self._ends[0][0] <= number:
            end = self._ends.popleft()[1]
        return end

    def take(self, log_end_offset: int) -> Ready:
        """Collect all pending effects, and the messages that may be sent now."""
        pending = self._appends or self._sends or self._held or self._committed or self._discarded
        if not pending and self._save is None and self._apply is None:
            return self._nothing
        if self._save is not None or self._appends:
            self.number += 1
            self._nothing = Ready(number=self.number)
            if self._appends:
                self._ends.append((self.number, log_end_offset))
        self._held.extend((self.number, message) for message in self._sends)
        ready = Ready(
            number=self.number,
            save=self._save,
            append=tuple(self._appends),
            send=self._released(),
            apply=self._apply,
            committed=tuple(self._committed),
            discarded=tuple(self._discarded),
        )
        self._save = self._apply = None
        self._appends, self._sends, self._committed, self._discarded = [], [], [], []
        return ready

    def _released(self) -> tuple[Send | Reply, ...]:
        released = []
        while self._held and self._held[0][0] <= self.persisted:
            released.append(self._held.popleft()[1])
        return tuple(released)
