"""A share partition against a plain model that has an entry for each record.

The model knows the rules record by record: who may get it, who may say something of it, how often it comes. Which records of a fetch a
member gets is the machine's to choose, within these rules; where something is free and nothing comes, it is wrong.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway_bus.kernel.share_state import ShareState, StateBatch
from busway_bus.share.acquisition import AcquireOptions, acquire, wanted_up_to
from busway_bus.share.in_flight import Acquired, Change, RecordState
from busway_bus.share.limits import ShareLimits
from busway_bus.share.state import Acknowledgement, SharePartitionState
from busway_protocol.errors import KafkaError

pytestmark = pytest.mark.slow
MEMBERS = ("a", "b", "c")
LIMITS = ShareLimits(lock_ms=20, delivery_count=4, in_flight=30)
DONE = {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}
NEXT = {0: RecordState.ARCHIVED, 1: RecordState.ACKNOWLEDGED, 2: RecordState.AVAILABLE, 3: RecordState.ARCHIVED}


@dataclass
class Record:
    """One record."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline: int = 0
    change: Change | None = None

    def given_back(self, limits: ShareLimits) -> None:
        """Its lock ended, or it was released."""
        given_up = RecordState.ARCHIVING if limits.dead_letters else RecordState.ARCHIVED
        self.state = given_up if self.count >= limits.delivery_count else RecordState.AVAILABLE


@dataclass
class Disk:
    """What was written: a start, and what became of the records behind it."""

    start: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, state: ShareState) -> None:
        """Merge a write, as the share coordinator does."""
        self.start = max(self.start, state.start_offset)
        for batch in state.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.records[offset] = (batch.delivery_state, batch.delivery_count)
        self.records = {offset: kept for offset, kept in self.records.items() if offset >= self.start}

    def read(self) -> ShareState:
        """As a leader gets it."""
        batches = [
            StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count)
            for offset, (state, count) in sorted(self.records.items())
        ]
        return ShareState(state_epoch=1, start_offset=self.start, batches=tuple(batches))


class Sharing(RuleBasedStateMachine):
    """Members fetch, acknowledge, leave and fall silent; writes succeed, fail and take their time; the log grows and loses its start."""

    limits = LIMITS

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        """A log that begins somewhere."""
        self.log: list[tuple[int, int]] = []
        self.log_start = self.log_end = self.now = 0
        self.log_start = self.log_end = start
        self.disk = Disk(start=start)
        self.state = SharePartitionState(self.disk.read())
        self.model: dict[int, Record] = {}
        self.writes: list[tuple[Change, ShareState]] = []
        self.letters: set[int] = set()
        self.given_up: set[int] = set()
        self.given: tuple[str, list[Acquired]] = "", []

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), gap=st.integers(0, 2))
    def produce(self, sizes: list[int], gap: int) -> None:
        """Batches come; compaction has left holes between some."""
        for size in sizes:
            self.log.append((self.log_end + gap, self.log_end + gap + size - 1))
            self.log_end += gap + size

    @rule(
        member=st.sampled_from(MEMBERS),
        wanted=st.integers(1, 12),
        size=st.integers(1, 8),
        record_limit=st.booleans(),
        aborted=st.booleans(),
    )
    def fetch(self, member: str, wanted: int, size: int, record_limit: bool, aborted: bool) -> None:
        """A member gets records that are free, with their counts."""
        if not self.state.can_acquire(self.limits):
            return
        offset = self.state.next_fetch_offset
        up_to = wanted_up_to(self.state, offset, wanted)
        fetched = []
        for first, last in self.log:
            if last >= offset:
                fetched.append((first, last))
                if last >= up_to:
                    break
        rolled_back = fetched[1:2] if aborted and len(fetched) > 1 else []
        options = AcquireOptions(member_id=member, max_records=wanted, batch_size=size, record_limit=record_limit)
        start, end = self.state.start, self.state.end
        acquired = acquire(
            self.state, options, fetched, offset=offset, aborted=rolled_back, limits=self.limits, now_ms=self.now
        )
        if fetched:
            for between in range(max(offset, start), fetched[0][0]):
                if between in self.model and self.model[between].state is RecordState.AVAILABLE:
                    self.model[between] = Record(RecordState.ARCHIVED, self.model[between].count)
        for spot in range(end, self.state.end):
            if any(first <= spot <= last for first, last in fetched) or spot >= (fetched[0][0] if fetched else 0):
                self.model.setdefault(spot, Record())
        for low, high in rolled_back:
            for spot in range(low, high + 1):
                if self.machine_state(spot) is RecordState.ARCHIVED and self.model[spot].state is RecordState.AVAILABLE:
                    self.model[spot] = Record(RecordState.ARCHIVED, self.model[spot].count + 1)
        self.given = member, acquired
        count = 0
        for first, last, delivered in acquired:
            for spot in range(first, last + 1):
                record = self.model[spot]
                assert record.state is RecordState.AVAILABLE, spot
                assert record.change is None, spot
                assert delivered == record.count + 1 <= self.limits.delivery_count
                assert not any(low <= spot <= high for low, high in rolled_back)
                self.model[spot] = Record(RecordState.ACQUIRED, delivered, member, self.now + self.limits.lock_ms)
                count += 1
        if record_limit:
            assert count <= wanted
        if fetched and not rolled_back:
            assert count, "something is free"
        self.settle()

    def machine_state(self, offset: int) -> RecordState | None:
        """What the machine says of a record; None where it has forgotten it."""
        for run in self.state.in_flight.runs:
            if run.first <= offset <= run.last:
                return run.state
        return RecordState.ARCHIVED if offset < self.state.start else None

    @rule(
        member=st.sampled_from(MEMBERS),
        at=st.integers(-3, 30),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=8),
        single=st.booleans(),
        own=st.booleans(),
    )
    def acknowledge(self, member: str, at: int, kinds: list[int], single: bool, own: bool) -> None:
        """What a member says of what it has is written; of anything else, and in parts, nothing holds."""
        first = max(self.state.start + at, 0)
        if own:
            has = [s for s, r in self.model.items() if r.state is RecordState.ACQUIRED and r.member == member]
            first = min(has, default=first)
            while len(kinds) > 1 and first + len(kinds) - 1 not in has:
                kinds = kinds[:-1]
        last = first + len(kinds) - 1
        types = kinds[:1] if single else kinds
        spots = [spot for spot in range(first, last + 1) if spot >= self.state.start]
        known = [spot for spot in spots if spot in self.model]
        legal = all(
            self.model[spot].state is RecordState.ACQUIRED
            and self.model[spot].change is None
            and self.model[spot].member == member
            for spot in known
        )
        acknowledgement = Acknowledgement(first=first, last=last, types=types)
        try:
            change = self.state.acknowledge(member, [acknowledgement], self.limits, self.now)
        except KafkaError:
            assert not legal or len(known) < len(spots), "it has all of them"
            # A lock that was renewed before the refused part stays so.
            for run in self.state.in_flight.runs:
                for spot in range(run.first, run.last + 1):
                    if run.locked and run.deadline_ms == self.now + self.limits.lock_ms and run.member_id == member:
                        self.model[spot].deadline = run.deadline_ms
            return
        assert legal, "it has not all of them"
        for spot in known:
            kind = kinds[0] if single else kinds[spot - first]
            record = self.model[spot]
            if kind == 4:
                record.deadline = self.now + self.limits.lock_ms
                continue
            rejected = kind == 3 and self.limits.dead_letters
            record.state, record.change = RecordState.ARCHIVING if rejected else NEXT[kind], change
            if kind == 2:
                record.given_back(self.limits)
        self.write(change)

    @rule()
    def answer_is_not_sent(self) -> None:
        """What the last fetch has given, and its member has still, was not delivered."""
        (member, acquired), self.given = self.given, ("", [])
        taken = False
        for first, last, delivered in acquired:
            for spot in range(first, last + 1):
                record = self.model.get(spot, Record())
                has = record.state is RecordState.ACQUIRED and record.change is None
                if has and (record.member, record.count) == (member, delivered):
                    self.model[spot] = Record(count=delivered - 1)
                    taken = True
        assert self.state.take_back(member, acquired) is taken
        self.settle()

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        """All that it has is given back."""
        change = self.state.release(member, self.limits)
        for record in self.model.values():
            if record.state is RecordState.ACQUIRED and record.member == member:
                record.given_back(self.limits)
                record.change = change
        self.write(change)

    def write(self, change: Change) -> None:
        """Begin to write, where there is anything to."""
        if change.batches:
            self.writes.append((change, self.state.written(1, change.batches)))

    @precondition(lambda self: self.writes)
    @rule(number=st.integers(0, 3), well=st.booleans())
    def written(self, number: int, well: bool) -> None:
        """A write ends, in any order."""
        change, state = self.writes.pop(number % len(self.writes))
        if well:
            self.disk.write(state)
        if well or change.holds:
            self.state.commit(change)
        else:
            self.state.roll_back(change, limits=self.limits, now_ms=self.now)
        for record in self.model.values():
            if record.change is not change:
                continue
            record.change = None
            if well or change.holds:
                continue
            if record.deadline > self.now:
                record.state = RecordState.ACQUIRED
            else:
                record.given_back(self.limits)
        self.settle()

    @rule(by=st.integers(1, 15))
    def time_passes(self, by: int) -> None:
        """Locks end."""
        self.now += by
        change = self.state.expire(self.limits, self.now)
        expected = set()
        for spot, record in self.model.items():
            if record.state is RecordState.ACQUIRED and record.change is None and record.deadline <= self.now:
                record.given_back(self.limits)
                record.change = change if record.state is RecordState.ARCHIVING else None
                expected.add((spot, int(record.state), record.count))
        changed = {
            (spot, batch.delivery_state, batch.delivery_count)
            for batch in change.batches
            for spot in range(batch.first_offset, batch.last_offset + 1)
        }
        assert changed == expected
        self.write(change)
        self.settle()

    @rule(at_most=st.integers(1, 6), kept=st.booleans())
    def bury(self, at_most: int, kept: bool) -> None:
        """Dead letters are written, of nothing else than what was given up and is kept so; then that is written, or is not."""
        letters = self.state.letters(self.limits, at_most)
        spots = [spot for letter in letters for spot in range(letter.first, letter.last + 1)]
        due = [
            spot
            for spot, record in sorted(self.model.items())
            if record.state is RecordState.ARCHIVING and record.change is None
        ]
        assert spots == due[:at_most]
        self.letters.update(spots)
        batches = self.state.buried(letters)
        if kept and batches:
            self.disk.write(self.state.written(1, batches))
        for spot in spots:
            self.model[spot].state = RecordState.ARCHIVED
        self.settle()

    @rule(by=st.integers(1, 12))
    def log_is_cut(self, by: int) -> None:
        """Records are deleted, read or not."""
        self.log_start = min(self.log_start + by, self.log_end)
        self.log = [(first, last) for first, last in self.log if last >= self.log_start]
        self.state.log_start_moved(self.log_start)
        self.model = {spot: record for spot, record in self.model.items() if spot >= self.log_start}
        self.settle()

    @rule()
    def another_leader(self) -> None:
        """What is not written is unknown to it: nothing that was written as done comes again, and what was given up is not archived
        without its dead letter."""
        self.writes.clear()
        self.state = SharePartitionState(self.disk.read())
        self.state.log_start_moved(self.log_start)
        before, self.model = self.model, {}
        for run in self.state.in_flight.runs:
            for spot in range(run.first, run.last + 1):
                assert spot not in before or run.delivery_count <= before[spot].count
                self.model[spot] = Record(run.state, run.delivery_count)
        self.settle()

    @invariant()
    def no_letter_is_lost(self) -> None:
        """Whatever was ever kept as given up has its dead letter, is still to get it, or the log has lost it."""
        if not hasattr(self, "model"):
            return
        kept = {spot for spot, (state, _) in self.disk.records.items() if state == RecordState.ARCHIVING}
        self.given_up = {spot for spot in self.given_up | kept if spot >= self.log_start} - self.letters
        for spot in self.given_up:
            kept_as = self.disk.records.get(spot)
            assert kept_as is not None, f"{spot} is done with and has no dead letter"
            assert kept_as[0] == RecordState.ARCHIVING, f"{spot} is {kept_as} and has no dead letter"
            assert self.model[spot].state is RecordState.ARCHIVING, spot

    def settle(self) -> None:
        """Forget what is done with at the beginning."""
        for spot in sorted(self.model):
            record = self.model[spot]
            if record.state not in DONE or record.change is not None:
                break
            del self.model[spot]

    @invariant()
    def agree(self) -> None:
        """The machine and the model say the same of each record."""
        if not hasattr(self, "model"):
            return
        known = {}
        for batch in self.state.in_flight:
            for run in batch.runs:
                assert run.first <= run.last
                for spot in range(run.first, run.last + 1):
                    assert spot not in known
                    known[spot] = (run.state, run.delivery_count)
        assert known == {spot: (record.state, record.count) for spot, record in self.model.items()}
        assert self.state.complete_count == sum(record.state in DONE for record in self.model.values())
        assert self.state.start <= min(known, default=self.state.end)
        assert max(known, default=-1) < self.state.end
        free = [s for s, record in self.model.items() if record.state is RecordState.AVAILABLE and not record.change]
        assert self.state.next_fetch_offset == min(free, default=self.state.end)
        locked = [r.deadline for r in self.model.values() if r.state is RecordState.ACQUIRED]
        assert self.state.next_deadline_ms == min(locked, default=None)


class SharingWithLetters(Sharing):
    """The same with dead letters: crash at each step, none is lost."""

    limits = replace(LIMITS, dead_letters=True)


SharingWithLetters.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestSharingWithLetters = SharingWithLetters.TestCase
Sharing.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestSharing = Sharing.TestCase
