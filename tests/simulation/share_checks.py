"""Checks of share groups: who was given a record when, what became of it, and that nothing is passed over.

Here: one function for each anomaly.
Not here: records and topics. That a group is done with everything once nothing goes wrong any more is asked by the run
itself (`scenario`).

What a broker did lies between question and answer. A check counts only what is certain: one lock lies before another where the one was
answered before the other was asked for, and it holds as long as the broker can have counted at least, unless something happened that may
have ended the member's session or the broker's memory of it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.checks import PLAIN, Anomaly, Check, Rules, cut_for_damage
from tests.simulation.history import Happening, History, Outcome, Partition, Send, shown
from tests.simulation.share_history import Given, Said, ShareRequest, ShareReset, ShareStart, ShareTaken
from tests.simulation.transaction_history import Transaction

NEVER: Final = 1 << 60
LIMIT: Final = 5
"""How often a record is delivered where the run says nothing."""
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_FORGETS: Final = frozenset(
    {"crash", "power cut", "restart", "lost", "started", "failing sync", "full disk", "does not start", "damage"}
)
"""What may have a broker forget who has a record, or fail to write down what became of it."""
_CUTS: Final = frozenset({"kill", "cut", "no_responses", "gone", "start"})
"""What may end a member's session."""
_LASTS_MS: Final = 5_000.0
"""So long after it has begun a fault may still do something."""
_ROUNDED_MS: Final = 1.0
"""A broker counts whole milliseconds."""
Place = tuple[str, Partition]


@dataclass(slots=True)
class Fate:
    """All that happened to one record in one group."""

    given: list[tuple[ShareRequest, Given]] = field(default_factory=list)
    said: list[tuple[ShareRequest, Said]] = field(default_factory=list)


class Shares:
    """A history by groups, partitions and offsets."""

    def __init__(self, history: History, rules: Rules) -> None:
        self.offsets: dict[Place, dict[int, Fate]] = defaultdict(lambda: defaultdict(Fate))
        self.resets: dict[Place, list[ShareReset]] = defaultdict(list)
        self.unclear: dict[str, list[ShareRequest]] = defaultdict(list)
        for request in history.of(ShareRequest):
            if not request.ok:
                self.unclear[request.group].append(request)
            for given in request.given:
                if rules.get(given.partition.topic, PLAIN).whole:
                    for offset in range(given.first, given.last + 1):
                        self.offsets[request.group, given.partition][offset].given.append((request, given))
            for said in request.said:
                if rules.get(said.partition.topic, PLAIN).whole:
                    for offset in range(said.first, said.last + 1):
                        self.offsets[request.group, said.partition][offset].said.append((request, said))
        for reset in history.of(ShareReset):
            if reset.outcome is not Outcome.FAIL:
                self.resets[reset.group, reset.partition].append(reset)
        self._forgets = [event for event in history.of(Happening) if event.kind in _FORGETS]
        self._cuts = [event for event in history.of(Happening) if event.kind in _CUTS]

    def each(self) -> Iterator[tuple[Place, int, Fate]]:
        """Every record that anybody was given, or has said something of."""
        for place, offsets in self.offsets.items():
            for offset, fate in sorted(offsets.items()):
                yield place, offset, fate

    def was_reset(self, place: Place, first: int, last: int) -> bool:
        """Whether the group may have been reset between two places in the order of events."""
        return any(
            reset.invoked < last and ((reset.returned or NEVER) if reset.ok else NEVER) > first
            for reset in self.resets.get(place, ())
        )

    def forgot(self, since: ShareRequest, until: ShareRequest) -> bool:
        """Whether the broker may have forgotten something between the beginning of one request and the end of another."""
        return _happened(self._forgets, since, until)

    def undisturbed(self, since: ShareRequest, until: ShareRequest) -> bool:
        """Whether a member certainly has what it was given, as long as the time of its lock is not over and it says nothing."""
        if self.forgot(since, until) or _happened(self._cuts, since, until):
            return False
        end = until.returned or NEVER
        return not any(
            request.member == since.member and request.invoked < end and (request.returned or NEVER) > since.invoked
            for request in self.unclear[since.group]
        )


def _happened(events: list[Happening], since: ShareRequest, until: ShareRequest) -> bool:
    end = until.returned or NEVER
    return any(event.invoked_ms + _LASTS_MS >= since.invoked_ms and event.invoked < end for event in events)


def _in_time(since: ShareRequest, until: ShareRequest) -> bool:
    """Whether a lock that was given cannot be over when another request is answered."""
    return until.returned_ms is not None and until.returned_ms < since.invoked_ms + since.lock_ms - _ROUNDED_MS


def accepted_again(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A record whose accept or reject was acknowledged is delivered again."""
    shares = Shares(history, rules)
    for place, offset, fate in shares.each():
        for request, said in fate.said:
            if said.kind not in {ACCEPT, REJECT} or not request.ok or said.problem:
                continue
            for later, given in fate.given:
                if later.invoked > (request.returned or NEVER) and not shares.was_reset(
                    place, request.invoked, later.returned or NEVER
                ):
                    text = f"{place[1]} {offset} to {later.process}, after {request.process} was told that it is done with: {given}"
                    yield Anomaly("accepted again", f"{place[0]} is given {text}")


def double_locks(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A record is acquired while a member has it."""
    shares = Shares(history, rules)
    for place, offset, fate in shares.each():
        for request, _ in fate.given:
            for later, _ in fate.given:
                if later.invoked < (request.returned or NEVER) or not _in_time(request, later):
                    continue
                gave_up = any(
                    other.member == request.member
                    and request.invoked < other.invoked < (later.returned or NEVER)
                    and said.kind != RENEW
                    for other, said in fate.said
                )
                if gave_up or not shares.undisturbed(request, later):
                    continue
                if not shares.was_reset(place, request.invoked, later.returned or NEVER):
                    text = f"{place[0]} {place[1]} {offset} is given to {later.process} while {request.process} has it"
                    yield Anomaly("double lock", text)


def zombie_acknowledgements(history: History, rules: Rules) -> Iterator[Anomaly]:
    """What a member says of a record is taken although its lock was over and another member has the record."""
    shares = Shares(history, rules)
    for place, offset, fate in shares.each():
        for request, said in fate.said:
            if not request.ok or said.problem or said.kind == RENEW:
                continue
            own_locks = [
                taken for taken, _ in fate.given if taken.member == request.member and taken.invoked < request.invoked
            ]
            if not own_locks:
                continue
            for other, _ in fate.given:
                if other.member == request.member or other.invoked < (own_locks[-1].returned or NEVER):
                    continue
                if (other.returned or NEVER) > request.invoked or not _in_time(other, request):
                    continue
                gave_up = any(
                    later.member == other.member and other.invoked < later.invoked < (request.returned or NEVER)
                    for later, about in fate.said
                    if about.kind != RENEW
                )
                if gave_up or not shares.undisturbed(other, request):
                    continue
                if not shares.was_reset(place, other.invoked, request.returned or NEVER):
                    text = f"{request.process} says {said} in {place[0]} while {other.process} has {offset}"
                    yield Anomaly("zombie acknowledgement", text)


def counts(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A delivery is counted lower than one before it although the broker cannot have forgotten that one: it was given back, and that was
    acknowledged, or the broker has not been down since. Or a record is delivered more often than it may be."""
    limits = limits_of(history)
    shares = Shares(history, rules)
    for place, offset, fate in shares.each():
        for request, given in fate.given:
            limit = limits.get(place[0], LIMIT)
            if given.delivery_count > limit:
                yield Anomaly("delivered too often", f"{place[0]} {place[1]} {offset}: {given}, at most {limit}")
            for later, again in fate.given:
                if later.invoked < (request.returned or NEVER) or again.delivery_count > given.delivery_count:
                    continue
                kept = any(
                    other.ok
                    and said.kind == RELEASE
                    and not said.problem
                    and other.member == request.member
                    and other.invoked > (request.returned or NEVER)
                    and (other.returned or NEVER) < later.invoked
                    and not any(request.invoked < between.invoked < other.invoked for between, _ in fate.given)
                    for other, said in fate.said
                )
                if (kept or not shares.forgot(request, later)) and not shares.was_reset(
                    place, request.invoked, later.returned or NEVER
                ):
                    text = f"{again} to {later.process}, after {given} to {request.process}"
                    yield Anomaly("delivery count", f"{place[0]} {offset}: {text}")


def limits_of(history: History) -> dict[str, int]:
    """How often records are delivered to each group."""
    limits: dict[str, int] = {}
    for event in history.of(Happening):
        if event.kind == "share group":
            name, _, limit = event.text.rpartition(" ")
            limits[name] = int(limit)
    return limits


def hidden_from(history: History) -> dict[str, set[bytes | None]]:
    """What may never be given to a group, as it reads committed records only and these may be aborted."""
    values: set[bytes | None] = {
        value
        for transaction in history.of(Transaction)
        if transaction.outcome is not Outcome.OK
        for _, value in transaction.values
    }
    return defaultdict(set, {taken.group: values for taken in history.of(ShareTaken) if taken.committed})


def starts(history: History, rules: Rules) -> Iterator[Anomaly]:
    """Where a group goes on falls back, without anybody having asked for it."""
    shares = Shares(history, rules)
    latest: dict[Place, list[ShareStart]] = defaultdict(list)
    for look in history.of(ShareStart):
        place = (look.group, look.partition)
        if not rules.get(look.partition.topic, PLAIN).durable:
            continue
        for before in latest[place]:
            fell = look.offset < before.offset and (before.returned or NEVER) < look.invoked
            if fell and not shares.was_reset(place, before.invoked, look.returned or NEVER):
                yield Anomaly("share start fell", f"{before.describe()}, and then at {look.offset}")
                break
        latest[place].append(look)


def passed_over(history: History, rules: Rules) -> Iterator[Anomaly]:
    """A group is done with all of a partition, and no member accepted or rejected a record that was acknowledged, nor was it delivered as often
    as it may be."""
    limits = limits_of(history)
    shares = Shares(history, rules)
    hidden = hidden_from(history)
    finals = {(look.group, look.partition): look for look in history.of(ShareStart) if look.end is not None}
    for place, final in finals.items():
        if not rules.get(place[1].topic, PLAIN).whole:
            continue
        resets = shares.resets.get(place, [])
        for send in history.of(Send):
            if not send.ok or send.offset is None or send.partition != place[1] or send.offset >= (final.end or 0):
                continue
            if send.value in hidden[place[0]]:
                continue
            if any(reset.offset > send.offset for reset in resets):
                continue
            since = max((reset.invoked for reset in resets if reset.ok), default=0)
            fate = shares.offsets[place][send.offset] if send.offset in shares.offsets[place] else Fate()
            if any(said.kind in {ACCEPT, REJECT} and request.invoked > since for request, said in fate.said):
                continue
            given = max((given.delivery_count for request, given in fate.given if request.invoked > since), default=0)
            unseen = sum(request.fetches and request.invoked > since for request in shares.unclear[place[0]])
            if given + unseen < limits.get(place[0], LIMIT):
                text = f"{place[0]} is done with {place[1]}, but not with {send.describe()}, delivered {given} times"
                yield Anomaly("passed over by a share group", text)


def aborted(history: History, _: Rules) -> Iterator[Anomaly]:
    """A group that reads committed records only is given one of a transaction that is not."""
    transactions = {value: transaction for transaction in history.of(Transaction) for _, value in transaction.values}
    cut = {partition.topic for partition in cut_for_damage(history)}  # of a marker, maybe
    for taken in history.of(ShareTaken):
        for record in taken.records if taken.committed else ():
            transaction = transactions.get(record.value or b"")
            if transaction is None or record.partition.topic in cut:
                continue
            text = f"{taken.process} of {taken.group} was given {shown(record.value)} at {record.offset} of {record.partition}"
            if not transaction.may_count:
                yield Anomaly("aborted share", f"{text}, of a transaction that is aborted")
            elif (taken.returned or 0) < (transaction.asked or 0):
                yield Anomaly("share before commit", f"{text} before its commit was asked for")


CHECKS: Final[tuple[Check, ...]] = (
    accepted_again,
    double_locks,
    zombie_acknowledgements,
    counts,
    starts,
    passed_over,
    aborted,
)
