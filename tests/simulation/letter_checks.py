"""Checks of the dead letters of share groups (KIP-1191): a record that is given up has one on disk first, and no other has.

Here: one function for each anomaly.
Not here: what becomes of records otherwise (`share_checks`). A record that a group is done with was accepted, or was
given up: rejected, or delivered as often as it may be. What is accepted is answered to who accepts it, so whatever
that no member can have accepted was given up, and has a letter; two letters are as good as one.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules
from tests.simulation.history import Happening, History, Send, shown
from tests.simulation.share_checks import ACCEPT, LIMIT, NEVER, REJECT, Place, Shares, hidden_from, limits_of
from tests.simulation.share_history import DeadLetter, Said, ShareLetters, ShareRequest, ShareStart

GAP: Final = 0
_REFUSED: Final = "INVALID_RECORD_STATE"
"""What is answered where certainly nothing becomes of a record by what a member says."""


def _may_hold(request: ShareRequest, said: Said) -> bool:
    return not (request.ok and said.problem == _REFUSED)


def _readings(history: History) -> dict[str, list[ShareLetters]]:
    """Of each group that has dead letters, those that were answered."""
    readings: dict[str, list[ShareLetters]] = {
        event.text: [] for event in history.of(Happening) if event.kind == "dead letters"
    }
    for reading in history.of(ShareLetters):
        if reading.ok and reading.group in readings:
            readings[reading.group].append(reading)
    return readings


def _looks(history: History, readings: dict[str, list[ShareLetters]]) -> Iterator[tuple[ShareStart, ShareLetters]]:
    """Where a group went on at a moment, with its dead letters as they were found next."""
    for look in history.of(ShareStart):
        for reading in readings.get(look.group, ()):
            if look.ok and reading.invoked > (look.returned or NEVER):
                yield look, reading
                break


def missing(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A group is done with a record that no member can have accepted, and there is no dead letter of it on disk."""
    readings = _readings(history)
    if not readings:
        return
    shares, hidden = Shares(history, rules), hidden_from(history)
    sends: dict[object, list[Send]] = defaultdict(list)
    for send in history.of(Send):
        if send.ok and send.offset is not None and rules.get(send.partition.topic, PLAIN).whole:
            sends[send.partition].append(send)
    reported: set[tuple[Place, int]] = set()
    for look, reading in _looks(history, readings):
        place = (look.group, look.partition)
        there = {letter.offset for letter in reading.letters if letter.partition == look.partition}
        passed = max(
            (reset.offset for reset in shares.resets.get(place, ()) if reset.invoked < (look.returned or NEVER)),
            default=0,
        )
        for send in sends[look.partition]:
            offset = send.offset or 0
            done = passed <= offset < (look.offset if look.end is None else look.end)
            if not done or offset in there or (place, offset) in reported or send.value in hidden[look.group]:
                continue
            fate = shares.offsets.get(place, {}).get(offset)
            if fate is not None and any(
                said.kind in {ACCEPT, GAP} and request.invoked < (look.returned or NEVER) and _may_hold(request, said)
                for request, said in fate.said
            ):
                continue
            reported.add((place, offset))
            name = "archived before its letter" if look.end is None else "dead letter missing"
            yield Anomaly(name, f"{look.describe()}, and has no dead letter of {send.describe()}")


def unfounded(history: History, rules: Rules) -> Iterator[Anomaly]:
    """There is a dead letter of a record that no member has rejected, and that was not delivered as often as it may be."""
    shares, limits = Shares(history, rules), limits_of(history)
    for group, letter in _letters(history, rules):
        fate = shares.offsets.get((group, letter.partition), {}).get(letter.offset)
        said = () if fate is None else fate.said
        if any(acknowledged.kind == REJECT and _may_hold(request, acknowledged) for request, acknowledged in said):
            continue
        given = max((given.delivery_count for _, given in fate.given), default=0) if fate is not None else 0
        unseen = sum(request.fetches for request in shares.unclear[group])
        if given + unseen < limits.get(group, LIMIT):
            text = f"{group} has given up {letter}, which nobody rejected, and which was seen {given} times"
            yield Anomaly("dead letter of a good record", text)


def untrue(history: History, rules: Rules) -> Iterator[Anomaly]:
    """What a dead letter has taken along is not the value of the record that it names, or it was delivered more often than may be."""
    limits = limits_of(history)
    sent = {(send.partition, send.offset): send.value for send in history.of(Send) if send.ok}
    for group, letter in _letters(history, rules):
        value = sent.get((letter.partition, letter.offset), letter.value)
        if letter.value is not None and letter.value != value:
            yield Anomaly("dead letter of another record", f"{letter} in {group}: {shown(letter.value)}")
        if not 1 <= letter.delivery_count <= limits.get(group, LIMIT):
            yield Anomaly("dead letter counted wrongly", f"{letter} in {group}")


def _letters(history: History, rules: Rules) -> Iterator[tuple[str, DeadLetter]]:
    """Each dead letter that anybody has seen, once."""
    for group, readings in _readings(history).items():
        letters = {letter: None for reading in readings for letter in reading.letters}
        yield from ((group, letter) for letter in letters if rules.get(letter.partition.topic, PLAIN).whole)


CHECKS: Final[tuple[Check, ...]] = (missing, unfounded, untrue)
