"""Histories of share groups that are written by hand, for the checks' own tests."""

from tests.simulation.history import Happening, History, Outcome, Partition, Send, value_of
from tests.simulation.share_history import DeadLetter, Given, Said, ShareLetters, ShareRequest, ShareReset, ShareStart

A = Partition("a", 0)
LOCK_MS = 1_000


class Made(History):
    """A history written by hand: each call is asked and answered before the next one, ten milliseconds later."""

    def __init__(self) -> None:
        super().__init__(lambda: self.at_ms)
        self.at_ms = 0.0

    def pass_ms(self, time_ms: float) -> None:
        self.at_ms += time_ms

    def request(self, member: str, *, outcome: Outcome = Outcome.OK, **more: object) -> None:
        made = ShareRequest(process=member, group="g", member=member, fetches=True, lock_ms=LOCK_MS, **more)  # type: ignore[arg-type]
        self.end(self.begin(made), outcome)
        self.pass_ms(10)

    def gives(self, member: str, count: int = 1, offset: int = 0) -> None:
        self.request(member, given=[Given(A, offset, offset, count)])

    def says(self, member: str, kind: int, problem: str = "", outcome: Outcome = Outcome.OK) -> None:
        self.request(member, said=[Said(A, 0, 0, kind, problem)], outcome=outcome)

    def happens(self, kind: str, text: str = "") -> None:
        self.note(Happening(process="world", kind=kind, text=text))

    def resets(self, offset: int, outcome: Outcome = Outcome.OK) -> None:
        self.end(self.begin(ShareReset(process="k", group="g", partition=A, offset=offset)), outcome)

    def goes_on(self, offset: int, end: int | None = None) -> None:
        self.note(ShareStart(process="k", group="g", partition=A, offset=offset, end=end))

    def buries(self, *offsets: int, count: int = 1, value: bytes | None = None) -> None:
        """Its dead letters are these, as a reader finds them."""
        letters = [DeadLetter(A, offset, count, value) for offset in offsets]
        self.note(ShareLetters(process="k", group="g", letters=letters))

    def sends(self) -> bytes:
        value = value_of("p", 0, A)
        self.note(Send(process="p", partition=A, value=value, offset=0))
        return value
