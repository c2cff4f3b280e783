"""A share partition: what happens to records, case by case."""

import pytest

from busway_bus.kernel.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, ShareState, StateBatch
from busway_bus.share.acquisition import AcquireOptions, acquire, wanted_up_to
from busway_bus.share.in_flight import Acquired, InFlight
from busway_bus.share.limits import ShareLimits
from busway_bus.share.state import Acknowledgement, SharePartitionState
from busway_protocol.errors import ErrorCode, KafkaError

LIMITS = ShareLimits(lock_ms=1000)
Spans = list[tuple[int, int]]


def begun(start: int = 0, *batches: StateBatch) -> SharePartitionState:
    """A share partition that begins at an offset."""
    return SharePartitionState(ShareState(state_epoch=1, start_offset=start, batches=batches))


def kept(first: int, last: int, state: int, count: int = 1) -> StateBatch:
    """A batch of the kept state."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


def take(
    state: SharePartitionState,
    fetched: Spans,
    member: str = "a",
    *,
    max_records: int = 500,
    batch_size: int = 500,
    record_limit: bool = False,
    aborted: Spans | None = None,
    limits: ShareLimits = LIMITS,
    now_ms: int = 0,
) -> list[Acquired]:
    """What a member gets of batches from the next offset on."""
    options = AcquireOptions(
        member_id=member, max_records=max_records, batch_size=batch_size, record_limit=record_limit
    )
    offset = state.next_fetch_offset
    return acquire(state, options, fetched, offset=offset, aborted=aborted or [], limits=limits, now_ms=now_ms)


def say(
    state: SharePartitionState, first: int, last: int, *types: int, member: str = "a", limits: ShareLimits = LIMITS
) -> list[StateBatch]:
    """Acknowledge and have it written; what was written."""
    acknowledgements = [Acknowledgement(first=first, last=last, types=types)]
    change = state.acknowledge(member, acknowledgements, limits, 0)
    state.commit(change)
    return change.batches


def refused(state: SharePartitionState, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
    """With what an acknowledgement is refused."""
    with pytest.raises(KafkaError) as problem:
        say(state, first, last, *types, member=member)
    return problem.value.code


def test_what_is_accepted_moves_the_start() -> None:
    """Records of a batch are acquired once, accepted, and done with."""
    state = begun()
    assert take(state, [(0, 9)]) == [(0, 9, 1)]
    assert state.next_fetch_offset == 10
    assert take(state, [(0, 9)], "b") == []
    assert say(state, 0, 4, 1) == [kept(0, 4, ACKNOWLEDGED)]
    assert (state.start, state.end) == (5, 10)
    say(state, 5, 9, 1)
    assert (state.start, state.end, state.complete_count, state.in_flight_count) == (10, 10, 0, 0)


def test_each_record_by_itself() -> None:
    """Accept, release, reject and gap in one batch; what was released comes again, counted."""
    state = begun()
    take(state, [(0, 5)])
    assert say(state, 0, 5, 1, 1, 2, 3, 0, 1) == [
        kept(0, 1, ACKNOWLEDGED),
        kept(2, 2, AVAILABLE),
        kept(3, 4, ARCHIVED),
        kept(5, 5, ACKNOWLEDGED),
    ]
    assert (state.start, state.complete_count, state.next_fetch_offset) == (2, 3, 2)
    assert take(state, [(0, 5)], "b") == [(2, 2, 2)]
    say(state, 2, 2, 1, member="b")
    assert state.start == 6


def test_who_may_acknowledge() -> None:
    """Only who has a record, once, and nothing that was never fetched."""
    state = begun()
    assert refused(state, 0, 0, 1) is ErrorCode.INVALID_RECORD_STATE
    take(state, [(3, 9)])
    assert state.start == 3, "what is not in the log is skipped"
    assert refused(state, 3, 9, 1, member="b") is ErrorCode.INVALID_RECORD_STATE
    assert refused(state, 3, 10, 1) is ErrorCode.INVALID_REQUEST
    assert refused(state, 12, 13, 1) is ErrorCode.INVALID_REQUEST
    say(state, 4, 4, 1)
    assert refused(state, 4, 4, 1) is ErrorCode.INVALID_RECORD_STATE
    assert refused(state, 3, 5, 1) is ErrorCode.INVALID_RECORD_STATE
    assert say(state, 3, 3, 1) == [kept(3, 3, ACKNOWLEDGED)], "the part of a refused one is taken back"
    assert say(state, 0, 2, 1) == [], "what is before the start is done with"


def test_a_write_that_fails() -> None:
    """Who had the records has them again; where the lock has ended meanwhile they are free, or given up."""
    state = begun()
    take(state, [(0, 9)])
    change = state.acknowledge("a", [Acknowledgement(first=0, last=9, types=[1])], LIMITS, 0)
    assert state.complete_count == 10
    assert state.next_deadline_ms is None
    assert state.expire(LIMITS, 2000).batches == [], "what is being written does not lapse"
    state.roll_back(change, limits=LIMITS, now_ms=999)
    assert state.next_deadline_ms == 1000
    change = state.acknowledge("a", [Acknowledgement(first=0, last=9, types=[1])], LIMITS, 0)
    state.roll_back(change, limits=LIMITS, now_ms=1000)
    assert state.next_fetch_offset == 0
    assert take(state, [(0, 9)], "b", now_ms=1000) == [(0, 9, 2)]


def test_what_was_not_delivered() -> None:
    """An answer that is not sent counts no delivery, also where it would have been the last; what happened to a record since stays."""
    state, limits = begun(), ShareLimits(lock_ms=10, delivery_count=2)
    given = take(state, [(0, 5)], limits=limits)
    assert state.take_back("a", given)
    assert not state.take_back("a", given), "it has none of it any more"
    assert (state.next_fetch_offset, state.next_deadline_ms) == (0, None)
    assert take(state, [(0, 5)], "b", limits=limits) == [(0, 5, 1)]
    assert not state.take_back("a", given), "another has them"
    state.expire(limits, 10)
    given = take(state, [(0, 5)], "b", limits=limits)
    assert given == [(0, 5, 2)]
    say(state, 0, 2, 1, member="b")
    assert state.take_back("b", given)
    assert state.start == 3
    assert take(state, [(0, 5)], "a", limits=limits) == [(3, 5, 2)]


def test_locks_end() -> None:
    """What no member acknowledges is another's, as often as the limit says, and then given up."""
    state, limits = begun(), ShareLimits(lock_ms=10, delivery_count=2)
    take(state, [(0, 1)], limits=limits)
    assert state.expire(limits, 9).batches == []
    assert state.expire(limits, 10).batches == [kept(0, 1, AVAILABLE)]
    assert refused(state, 0, 1, 1) is ErrorCode.INVALID_RECORD_STATE
    assert take(state, [(0, 1)], limits=limits, now_ms=10) == [(0, 1, 2)]
    assert state.expire(limits, 20).batches == [kept(0, 1, ARCHIVED, 2)]
    assert state.start == 2


def test_locks_are_renewed() -> None:
    """A renewed lock begins again, for the records that are named; not where the group may not."""
    state = begun()
    take(state, [(0, 9)])
    change = state.acknowledge("a", [Acknowledgement(first=0, last=4, types=[4])], LIMITS, 500)
    assert change.batches == []
    assert state.expire(LIMITS, 1000).batches == [kept(5, 9, AVAILABLE)]
    assert state.next_deadline_ms == 1500
    with pytest.raises(KafkaError):
        say(state, 0, 4, 4, limits=ShareLimits(renew=False))


def test_a_member_leaves() -> None:
    """All that it has is free; what others have is not."""
    state = begun()
    take(state, [(0, 9)])
    take(state, [(10, 19)], "b")
    change = state.release("a", LIMITS)
    assert take(state, [(0, 9)], "c") == [], "not before it is written"
    state.commit(change)
    assert change.batches == [kept(0, 9, AVAILABLE)]
    assert take(state, [(0, 19)], "c") == [(0, 9, 2)]


def test_the_log_is_cut() -> None:
    """What the log has no more is done with, also while a member has it."""
    state = begun()
    take(state, [(0, 9), (10, 19)], batch_size=5)
    assert not state.log_start_moved(0)
    change = state.acknowledge("a", [Acknowledgement(first=0, last=9, types=[1])], LIMITS, 0)
    assert state.log_start_moved(5)
    state.roll_back(change, limits=LIMITS, now_ms=0)
    assert say(state, 0, 4, 1) == []
    assert say(state, 0, 19, 1) == [kept(5, 19, ACKNOWLEDGED)]
    state.log_start_moved(40)
    assert (state.start, state.end, state.next_fetch_offset, state.in_flight_count) == (40, 40, 40, 0)


def test_compaction_takes_records_that_were_released() -> None:
    """They are given up when a fetch from there finds none."""
    state = begun()
    take(state, [(0, 9)])
    say(state, 0, 9, 2)
    assert take(state, [(5, 9)]) == [(5, 9, 2)]
    assert state.start == 5


def test_whole_batches_and_the_limit_of_records() -> None:
    """max_records is passed to the end of a batch; new records are returned in parts of the batch size."""
    state = begun()
    log = [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert take(state, log, max_records=15, batch_size=10) == [(0, 9, 1), (10, 19, 1)]
    assert take(state, log[2:], max_records=1) == [(20, 29, 1)]
    say(state, 0, 29, 2)
    assert take(state, log, max_records=1) == [(0, 9, 2)]
    assert take(state, log, max_records=11) == [(10, 19, 2), (20, 29, 2)]


def test_no_more_than_asked_for() -> None:
    """With record_limit the rest of the batch stays free, and comes next."""
    state = begun()
    log = [(0, 9), (10, 19)]
    assert take(state, log, max_records=4, record_limit=True) == [(0, 3, 1)]
    assert (state.next_fetch_offset, state.end) == (4, 10)
    assert take(state, log, "b", max_records=3, record_limit=True) == [(4, 6, 1)]
    assert take(state, log, "c", max_records=20, record_limit=True) == [(7, 9, 1), (10, 19, 1)]
    say(state, 0, 3, 2)
    say(state, 4, 6, 2, member="b")
    assert take(state, log, max_records=5, record_limit=True) == [(0, 4, 2)]


def test_as_many_as_may_be_locked() -> None:
    """Behind the limit no member gets anything new, but what was released."""
    state, limits = begun(), ShareLimits(in_flight=10)
    assert take(state, [(0, 3), (4, 7), (8, 11), (12, 15)], limits=limits) == [(0, 11, 1)]
    assert not state.can_acquire(limits)
    say(state, 5, 5, 2)
    assert state.can_acquire(limits)
    assert take(state, [(4, 7), (8, 11), (12, 15)], limits=limits) == [(5, 5, 2)]
    say(state, 0, 3, 1)
    assert take(state, [(12, 15), (16, 19)], limits=limits) == [(12, 15, 1)]


def test_what_an_earlier_leader_left() -> None:
    """States and counts are taken over; what it had given away, and did not persist, comes first."""
    state = begun(5, kept(5, 6, ACKNOWLEDGED), kept(10, 14, ACKNOWLEDGED), kept(18, 19, AVAILABLE, 3))
    assert (state.start, state.end, state.complete_count, state.next_fetch_offset) == (7, 20, 5, 7)
    log = [(0, 8), (9, 12), (13, 30)]
    assert take(state, log, max_records=1) == [(7, 8, 1)]
    assert take(state, log[1:], max_records=2) == [(9, 9, 1), (15, 17, 1)]
    assert take(state, log[2:], max_records=50) == [(18, 18, 4)], "delivered often: alone, and nothing new with it"
    assert take(state, log[2:], max_records=50) == [(19, 19, 4)]
    assert take(state, log[2:], max_records=50) == [(20, 30, 1)]


def test_gaps_that_the_log_has_lost() -> None:
    """Records that were never sent and that are compacted away do not hold up the start."""
    state = begun(0, kept(10, 14, ACKNOWLEDGED))
    assert take(state, [(5, 9), (10, 14), (15, 16)], max_records=3) == [(5, 9, 1)]
    assert state.start == 5
    say(state, 5, 9, 1)
    assert state.start == 15


@pytest.mark.parametrize(
    "batches", [[kept(4, 5, AVAILABLE)], [kept(7, 6, AVAILABLE)], [kept(6, 7, AVAILABLE), kept(7, 8, AVAILABLE)]]
)
def test_a_state_that_contradicts_itself(batches: list[StateBatch]) -> None:
    """It is refused, and not guessed at."""
    with pytest.raises(ValueError, match="share partition"):
        begun(5, *batches)


def test_a_bad_record_is_isolated() -> None:
    """A batch whose consumers die comes by halves, and each record of its last delivery alone."""
    state, limits = begun(), ShareLimits(lock_ms=1, delivery_count=5)
    log = [(0, 7)]
    for now, expected in [(0, (0, 7, 1)), (1, (0, 7, 2)), (2, (0, 7, 3))]:
        assert take(state, log, limits=limits, now_ms=now) == [expected]
        state.expire(limits, now + 1)
    assert take(state, log, limits=limits, now_ms=10) == [(0, 3, 4)]
    assert take(state, log, limits=limits, now_ms=10) == [(4, 7, 4)]
    state.expire(limits, 11)
    assert [take(state, log, limits=limits, now_ms=11) for _ in range(3)] == [[(0, 0, 5)], [(1, 1, 5)], [(2, 2, 5)]]


def test_aborted_records_are_nobodys() -> None:
    """What was rolled back is given up, and the rest of the fetch comes; a fetch of nothing else moves the start."""
    state = begun()
    log = [(0, 4), (5, 9), (10, 14)]
    assert take(state, log, aborted=[(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
    say(state, 0, 4, 1)
    say(state, 10, 14, 1)
    assert state.start == 15
    assert take(state, [(15, 19)], aborted=[(15, 19)]) == []
    assert (state.start, state.in_flight_count) == (20, 0)


def test_how_far_to_read() -> None:
    """To the end of the batch in which the last wanted record is, over what others have."""
    state = begun()
    assert wanted_up_to(state, 0, 10) == 9
    take(state, [(0, 9), (10, 19)], batch_size=5)
    say(state, 2, 3, 2)
    assert wanted_up_to(state, 2, 2) == 9
    assert wanted_up_to(state, 2, 3) == 20


def test_what_is_written() -> None:
    """The start and the count go with the states."""
    state = begun()
    take(state, [(0, 9)])
    change = state.acknowledge("a", [Acknowledgement(first=5, last=9, types=[1])], LIMITS, 0)
    assert state.written(7, change.batches) == ShareState(
        state_epoch=1,
        leader_epoch=7,
        start_offset=0,
        delivery_complete_count=5,
        batches=(kept(5, 9, ACKNOWLEDGED),),
    )


@pytest.mark.slow
def test_acknowledgements_one_by_one_are_linear() -> None:
    """Ten thousand records, each with an acknowledgement or a type of its own, take no time that others notice."""
    limits = ShareLimits(in_flight=10_000, delivery_count=10)
    state = begun()
    log = [(0, 9_999)]
    take(state, log, max_records=10_000, limits=limits)
    types = [1 + offset % 2 for offset in range(10_000)]
    say(state, 0, 9_999, *types, limits=limits)
    assert state.complete_count == 4_999, "the first one is done with"
    assert len(take(state, log, max_records=10_000, limits=limits)) == 5_000
    acknowledgements = [Acknowledgement(first=offset, last=offset, types=[2]) for offset in range(1, 10_000, 2)]
    state.commit(state.acknowledge("a", acknowledgements, limits, 0))
    rolled_back = [(offset, offset) for offset in range(1, 10_000, 4)]
    assert len(take(state, log, max_records=10_000, limits=limits, aborted=rolled_back)) == 2_500
    assert state.start == 3


def test_a_record_that_is_acknowledged_twice_in_one_request() -> None:
    """Nothing of the request holds."""
    state = begun()
    take(state, [(0, 9)])
    acknowledgements = [Acknowledgement(first=0, last=5, types=[1]), Acknowledgement(first=5, last=9, types=[1])]
    with pytest.raises(KafkaError) as problem:
        state.acknowledge("a", acknowledgements, LIMITS, 0)
    assert problem.value.code is ErrorCode.INVALID_RECORD_STATE
    assert say(state, 0, 9, 1) == [kept(0, 9, ACKNOWLEDGED)]


@pytest.mark.slow
def test_what_many_members_say_is_kept_together() -> None:
    """Two thousand answers that were written together are taken in with one look at the records, not with one for each."""
    limits = ShareLimits(in_flight=10_000, delivery_count=10)
    state = begun()
    take(state, [(offset, offset) for offset in range(10_000)], max_records=10_000, batch_size=1, limits=limits)
    changes = [
        state.acknowledge("a", [Acknowledgement(first=offset, last=offset, types=[1])], limits, 0)
        for offset in range(1, 4_001, 2)
    ]
    looked_at = Counting(state.in_flight)
    state.in_flight = looked_at
    state.roll_back(*changes[:1_000], limits=limits, now_ms=0)
    state.commit(*changes[1_000:])
    assert looked_at.looks == 2
    assert (state.complete_count, state.start) == (1_000, 0)


class Counting(InFlight):
    """Counts how often all records are gone over for changes."""

    def __init__(self, batches: InFlight) -> None:
        super().__init__(batches)
        self.looks = 0

    def join(self) -> None:
        """As before; what has changed is always joined once."""
        self.looks += 1
        super().join()


def test_dead_letters_of_one_batch_are_taken_in_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many records by themselves among others: all are walked through once, not once for each letter."""
    limits = ShareLimits(in_flight=4000, dead_letters=True)
    state = begun()
    take(state, [(0, 3999)], max_records=4000, limits=limits)
    say(state, 0, 3999, *([4] + [3, 4] * 1999 + [3]), limits=limits)
    letters = state.letters(limits, 500)
    assert [(letter.first, letter.last) for letter in letters] == [(number, number) for number in range(1, 1000, 2)]
    joined, join = [], InFlight.join
    monkeypatch.setattr(InFlight, "join", lambda self: (joined.append(self), join(self)))
    batches = state.buried(letters)
    assert len(joined) == 1
    assert batches == [kept(number, number, ARCHIVED) for number in range(1, 1000, 2)]
    assert state.letters(limits, 1)[0].first == 1001
    assert state.complete_count == 500


def test_a_dead_letter_of_what_the_log_lost_meanwhile() -> None:
    """It is of nothing any more; the rest of its range is archived."""
    limits = ShareLimits(dead_letters=True)
    state = begun()
    take(state, [(0, 9)], limits=limits)
    say(state, 2, 8, 3, limits=limits)
    letters = state.letters(limits, 500)
    assert [(letter.first, letter.last) for letter in letters] == [(2, 8)]
    state.log_start_moved(5)
    assert state.buried(letters) == [kept(5, 8, ARCHIVED)]
    assert state.buried(letters) == []
