"""What a partition may acknowledge and show: by tables, and by every order of events that a machine can think of."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway_bus.metadata.image import PartitionImage
from busway_bus.replication.acknowledgements import Acknowledgements
from busway_bus.replication.isr import AlterPartition
from busway_bus.replication.partition_state import (
    ACKS_ALL,
    ACKS_LEADER,
    NOTHING,
    TRANSITIONS,
    Effect,
    Event,
    PartitionState,
    Role,
)

ME, SECOND, THIRD = 1, 2, 3
LAG_MAX_MS = 1_000
MOVED = (Effect.ACKNOWLEDGE, Effect.HIGH_WATERMARK_MOVED)


def image(isr: tuple[int, ...] = (ME,), leader: int = ME, epoch: int = 0, partition_epoch: int = 0) -> PartitionImage:
    """A record of the partition, on as many replicas as its ISR names."""
    return PartitionImage(
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        replicas=tuple(sorted({ME, *isr})),
        isr=isr,
    )


def leader(isr: tuple[int, ...] = (ME,), **values: Any) -> PartitionState:
    """This node leads an empty log."""
    state = PartitionState(node_id=ME, log_end_offset=0, flushed_offset=0, high_watermark=0)
    state.registered(image(isr), now_ms=0)
    state.configured(**{"written_counts": False, **values})
    return state


def follower() -> PartitionState:
    """Another node leads."""
    state = PartitionState(node_id=ME, log_end_offset=0, flushed_offset=0, high_watermark=0)
    state.registered(image((ME, SECOND), leader=SECOND), now_ms=0)
    return state


@pytest.mark.parametrize(
    ("written_counts", "after_append", "after_flush"),
    [(False, 0, 10), (True, 10, 10)],
    ids=["durability=flush", "durability=interval or os"],
)
def test_alone_a_replica_commits_what_counts_as_its_own(written_counts, after_append, after_flush):
    """An ISR of one: durability decides which of its offsets it is, and nothing else."""
    state = leader(written_counts=written_counts)
    effects = state.appended(10)
    assert (effects, state.high_watermark) == (MOVED if after_append else NOTHING, after_append)
    effects = state.flushed(10)
    assert (effects, state.high_watermark) == (NOTHING if after_append else MOVED, after_flush)


@pytest.mark.parametrize(
    ("flushed", "fetched", "high_watermark", "all_acknowledged", "leader_acknowledged"),
    [
        (0, {SECOND: 10, THIRD: 10}, 0, False, False),
        (10, {}, 0, False, True),
        (10, {SECOND: 10}, 0, False, True),
        (10, {SECOND: 10, THIRD: 7}, 7, False, True),
        (10, {SECOND: 10, THIRD: 10}, 10, True, True),
    ],
)
def test_three_replicas_commit_what_all_of_them_have(
    flushed, fetched, high_watermark, all_acknowledged, leader_acknowledged
):
    """acks=all waits for all that are in sync, acks=1 for the leader alone."""
    state = leader((ME, SECOND, THIRD))
    state.appended(10)
    state.flushed(flushed)
    for replica, offset in fetched.items():
        state.fetched(replica, offset, 1)
    assert state.high_watermark == high_watermark
    assert state.may_acknowledge(9, ACKS_ALL) is all_acknowledged
    assert state.may_acknowledge(9, ACKS_LEADER) is leader_acknowledged


def test_a_topic_that_is_made_safer_shows_what_it_showed_and_acknowledges_what_is_on_disk():
    """The high watermark does not fall; a duplicate of what is not flushed waits."""
    state = leader(written_counts=True)
    state.appended(10)
    state.configured(written_counts=False)
    assert state.high_watermark == 10
    assert not state.may_acknowledge(9, ACKS_ALL)
    state.flushed(10)
    assert state.may_acknowledge(9, ACKS_ALL)


@pytest.mark.parametrize(
    ("isr", "min_isr", "committed"),
    [((ME,), 1, True), ((ME,), 2, True), ((ME, SECOND, THIRD), 2, True), ((ME, SECOND, THIRD), 9, True)],
)
def test_min_isr_counts_no_more_replicas_than_there_are(isr, min_isr, committed):
    """A topic on one node with min.insync.replicas=2 goes on, as in Kafka."""
    state = leader(isr, min_isr=min_isr)
    state.appended(1)
    state.flushed(1)
    for replica in isr[1:]:
        state.fetched(replica, 1, 1)
    assert (state.high_watermark == 1) is committed


def test_under_min_isr_nothing_more_is_committed():
    """Of three replicas two have to be in sync; one is (KIP-966)."""
    state = leader((ME, SECOND, THIRD), min_isr=2)
    state.registered(replace(image((ME, SECOND, THIRD), partition_epoch=1), isr=(ME,)), now_ms=1)
    assert state.under_min_isr
    state.appended(1)
    state.flushed(1)
    assert state.high_watermark == 0


def test_a_lagging_follower_leaves_and_one_that_has_all_comes_back():
    """Shrink and expand, each asked for once, and the high watermark waits for who may be in already."""
    state = leader((ME, SECOND))
    state.appended(10)
    state.flushed(10)
    assert state.time_passed(LAG_MAX_MS, LAG_MAX_MS) == NOTHING
    (asked,) = state.time_passed(LAG_MAX_MS + 1, LAG_MAX_MS)
    assert asked == AlterPartition(leader_epoch=0, partition_epoch=0, isr=(ME,))
    assert state.time_passed(LAG_MAX_MS + 2, LAG_MAX_MS) == NOTHING, "it is asked already"
    assert state.high_watermark == 0, "the controller has not answered"
    assert state.isr_altered(replace(asked, partition_epoch=1)) == MOVED
    assert (state.isr, state.high_watermark) == ((ME,), 10)

    assert state.fetched(SECOND, 9, 2_000) == NOTHING
    (asked,) = state.fetched(SECOND, 10, 2_001)
    assert asked == AlterPartition(leader_epoch=0, partition_epoch=1, isr=(ME, SECOND))
    state.appended(20)
    state.flushed(20)
    assert state.high_watermark == 10, "it may be in sync already"
    state.isr_altered(replace(asked, partition_epoch=2))
    assert state.fetched(SECOND, 20, 2_002) == MOVED


def test_a_follower_with_a_leaders_epoch_to_catch_up_on_stays_outside():
    """It has all that is committed, but not all that was there when this leader's epoch began."""
    state = PartitionState(node_id=ME, log_end_offset=10, flushed_offset=10, high_watermark=5)
    state.registered(replace(image((ME, SECOND, THIRD), epoch=1), isr=(ME, THIRD)), now_ms=0)
    assert state.fetched(SECOND, 9, 1) == NOTHING
    (asked,) = state.fetched(SECOND, 10, 2)
    assert asked.isr == (ME, THIRD, SECOND)


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_enter():
    """Under steady writes a follower is always a fetch behind, and would never have all that is committed."""
    state = leader((ME, SECOND))
    state.appended(10)
    state.flushed(10)
    (asked,) = state.time_passed(LAG_MAX_MS + 1, LAG_MAX_MS)
    state.isr_altered(replace(asked, partition_epoch=1))
    assert state.high_watermark == 10
    state.fetched(SECOND, 5, 2_000, lag_max_ms=LAG_MAX_MS)
    state.appended(20)
    assert state.flushed(20) == MOVED, "it is behind for too long to be waited for"
    state.fetched(SECOND, 10, 2_001, lag_max_ms=LAG_MAX_MS)
    assert state.followers[SECOND].joining
    state.appended(30)
    state.flushed(30)
    assert state.high_watermark == 20
    (asked,) = state.fetched(SECOND, 20, 2_002, lag_max_ms=LAG_MAX_MS)
    assert asked.isr == (ME, SECOND)
    assert state.fetched(SECOND, 30, 2_003, lag_max_ms=LAG_MAX_MS) == MOVED


@pytest.mark.parametrize("gone", ["fenced", "late", "fetched as ineligible"])
def test_who_may_not_enter_any_more_is_not_waited_for(gone):
    """A dead broker holds nothing up."""
    state = leader((ME, SECOND, THIRD))
    state.registered(replace(image((ME, SECOND, THIRD), partition_epoch=1), isr=(ME,)), now_ms=0)
    state.appended(10)
    state.fetched(SECOND, 10, 100)
    assert state.in_flight is not None
    state.isr_refused(state.in_flight, undone=True)
    state.appended(20)
    assert state.flushed(20) == MOVED
    assert state.high_watermark == 10
    if gone == "fenced":
        assert state.ineligible(SECOND) == MOVED
        assert state.ineligible(SECOND) == state.ineligible(THIRD) == NOTHING
    elif gone == "late":
        assert state.time_passed(100 + LAG_MAX_MS, LAG_MAX_MS) == NOTHING
        assert state.time_passed(101 + LAG_MAX_MS, LAG_MAX_MS) == MOVED
    else:
        assert state.fetched(SECOND, 10, 101, eligible=False) == MOVED
    assert (state.high_watermark, state.in_flight) == (20, None)


def test_the_controller_is_asked_with_the_epochs_of_the_processes_that_were_in_sync():
    """A process that started since then, maybe with less, does not get in under its predecessor's name (KIP-903)."""
    state = leader((ME, SECOND))
    state.registered(replace(image((ME, SECOND, THIRD), partition_epoch=1), isr=(ME, SECOND)), now_ms=0)
    state.fetched(SECOND, 0, 1, broker_epoch=7)
    (asked,) = state.fetched(THIRD, 0, 2, broker_epoch=8)
    assert asked.broker_epochs == (-1, 7, 8)
    state.fetched(THIRD, 0, 3, broker_epoch=9)
    assert state.in_flight is not None
    assert state.in_flight.broker_epochs == (-1, 7, 8)


def test_an_answer_that_changes_nothing_ends_the_request():
    """The controller had that ISR already: its epoch stays, and the next request may follow."""
    state = leader((ME, SECOND))
    state.appended(10)
    state.flushed(10)
    (asked,) = state.time_passed(LAG_MAX_MS + 1, LAG_MAX_MS)
    assert state.isr_altered(asked) == NOTHING
    assert state.in_flight is asked
    assert state.isr_altered(asked, asked) == MOVED
    assert state.in_flight is None


@pytest.mark.parametrize("undone", [True, False], ids=["it will not be done", "it may have been done"])
def test_a_refusal_that_may_have_been_done_keeps_who_was_asked_for(undone):
    """Only what surely was not done may be asked for again; the record of the partition tells of the other."""
    state = leader((ME, SECOND))
    state.appended(10)
    state.flushed(10)
    (asked,) = state.time_passed(LAG_MAX_MS + 1, LAG_MAX_MS)
    assert state.isr_refused(asked, undone=undone) == NOTHING
    assert bool(state.time_passed(LAG_MAX_MS + 2, LAG_MAX_MS)) is undone
    state.registered(image((ME, SECOND), partition_epoch=1), now_ms=LAG_MAX_MS + 3)
    assert state.in_flight is None


def test_an_old_record_or_answer_changes_nothing():
    """Epochs are monotone, whatever order the controller's answers and the metadata come in."""
    state = leader((ME, SECOND))
    state.registered(image((ME, SECOND), epoch=3, partition_epoch=7), now_ms=0)
    assert state.registered(image((ME,), epoch=3, partition_epoch=6), now_ms=0) == NOTHING
    assert state.registered(image((ME,), epoch=2, partition_epoch=8), now_ms=0) == NOTHING
    assert state.isr_altered(AlterPartition(leader_epoch=2, partition_epoch=9, isr=(ME,))) == NOTHING
    assert state.isr_altered(AlterPartition(leader_epoch=3, partition_epoch=7, isr=(ME,))) == NOTHING
    assert (state.leader_epoch, state.partition_epoch, state.isr) == (3, 7, (ME, SECOND))


def test_a_leader_that_becomes_a_follower_lets_go_of_who_waits():
    """A producer that waits for an acknowledgement is sent to the new leader."""
    state = leader((ME, SECOND))
    state.appended(10)
    effects = state.registered(image((ME, SECOND), leader=SECOND, epoch=1, partition_epoch=1), now_ms=0)
    assert effects == (Effect.LEADERSHIP_LOST,)
    state.flushed(10)
    assert state.high_watermark == 0, "a follower commits nothing by itself"
    assert state.leader_high_watermark(50) == MOVED
    assert state.high_watermark == 10, "it has no more"


def test_readers_of_committed_transactions_stop_where_the_oldest_open_one_begins():
    """The last stable offset is the high watermark where there is none, and never more (KIP-98)."""
    state = leader()
    state.appended(10)
    state.flushed(10)
    assert state.last_stable_offset == 10
    for first_open, last_stable in ((4, 4), (10, 10), (12, 10), (None, 10)):
        state.transactions_restored(first_open)
        assert state.last_stable_offset == last_stable


def test_the_end_of_a_transaction_counts_when_it_is_committed_itself():
    """Until then a reader could see an outcome that a crash takes back."""
    state = leader()
    state.transaction_began(0)
    state.appended(2)
    state.transaction_began(2)
    state.appended(4)
    state.flushed(4)
    assert (state.high_watermark, state.last_stable_offset) == (4, 0)
    state.transaction_ended(0, 4, 2)
    state.appended(5)
    assert (state.high_watermark, state.last_stable_offset) == (4, 0)
    state.transaction_ended(2, 5, None)
    state.appended(6)
    assert state.flushed(5) == MOVED
    assert (state.high_watermark, state.last_stable_offset) == (5, 2)
    state.transaction_began(6)
    state.appended(7)
    assert state.flushed(7) == MOVED
    assert (state.high_watermark, state.last_stable_offset) == (7, 6)


def test_a_transaction_that_is_written_and_ended_before_anything_is_committed_hides_nothing_afterwards():
    """One flush may cover all of it."""
    state = leader()
    for offset in range(0, 6, 2):
        state.transaction_began(offset)
        state.appended(offset + 1)
        state.transaction_ended(offset, offset + 1, None)
        state.appended(offset + 2)
    assert state.last_stable_offset == 0
    state.flushed(6)
    assert (state.last_stable_offset, len(state.ending)) == (6, 0)


def test_an_end_that_is_cut_off_has_never_been():
    """A follower that has gone astray forgets it, and its log tells what is open then."""
    state = leader()
    state.transaction_began(0)
    state.appended(2)
    state.transaction_ended(0, 2, None)
    state.appended(3)
    state.registered(image((ME, SECOND), leader=SECOND, epoch=1, partition_epoch=1), now_ms=0)
    state.truncated(2)
    state.transactions_restored(0)
    assert state.leader_high_watermark(2) == MOVED
    assert (state.last_stable_offset, len(state.ending)) == (0, 0)


@pytest.mark.parametrize(("role", "event"), list(product(Role, Event)), ids=str)
def test_a_role_takes_the_events_of_its_table_and_no_other(role, event):
    """Every pair of the table and every pair that is not in it."""
    state = {
        Role.NONE: lambda: PartitionState(node_id=ME, log_end_offset=0, flushed_offset=0, high_watermark=0),
        Role.LEADER: lambda: leader((ME, SECOND)),
        Role.FOLLOWER: follower,
    }[role]()
    answer = AlterPartition(leader_epoch=0, partition_epoch=0, isr=(ME,))
    happen = {
        Event.LEADS: lambda: state.became_leader(image(epoch=1, partition_epoch=1), 0),
        Event.FOLLOWS: lambda: state.became_follower(image(leader=SECOND, epoch=1, partition_epoch=1)),
        Event.FOLLOWER_FETCHED: lambda: state.fetched(SECOND, 0, 0),
        Event.ISR_ANSWERED: lambda: state.isr_altered(answer),
        Event.TIME_PASSED: lambda: state.time_passed(0, LAG_MAX_MS),
        Event.LEADER_HIGH_WATERMARK: lambda: state.leader_high_watermark(0),
    }[event]
    expected = TRANSITIONS.get((role, event))
    if expected is None:
        with pytest.raises(AssertionError, match=f"{event.name} came to a partition in the role {role.name}"):
            happen()
    else:
        happen()
        assert state.role is expected


class ThreeReplicas(RuleBasedStateMachine):
    """One of three replicas, with a controller that answers late, wrongly or never, and settings that change."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PartitionState(node_id=ME, log_end_offset=0, flushed_offset=0, high_watermark=0)
        self.acknowledgements = Acknowledgements()
        self.now_ms = 0
        self.epoch = self.partition_epoch = 0
        self.fetched: dict[int, int] = {SECOND: 0, THIRD: 0}
        self.asked: list[AlterPartition] = []
        self.highest = 0
        self.epochs: tuple[int, int] = (-1, -1)

    def happened(self, effects: Any) -> None:
        """What the shell does with effects, and what must hold when it does."""
        for effect in effects:
            if effect is Effect.ACKNOWLEDGE:
                self.acknowledgements.complete(self.state)
            elif effect is Effect.HIGH_WATERMARK_MOVED:
                assert self.state.high_watermark > self.highest
            elif effect is Effect.LEADERSHIP_LOST:
                self.acknowledgements.fail(None)  # type: ignore[arg-type]
            else:
                self.asked.append(effect)
        self.highest = max(self.highest, self.state.high_watermark)

    @initialize(isr=st.sets(st.sampled_from((SECOND, THIRD))))
    def begins(self, isr: set[int]) -> None:
        """It leads."""
        self._register(ME, isr)

    def _register(self, leads: int, isr: set[int]) -> None:
        self.partition_epoch += 1
        record = PartitionImage(
            leader=leads,
            leader_epoch=self.epoch,
            partition_epoch=self.partition_epoch,
            replicas=(ME, SECOND, THIRD),
            isr=tuple(sorted({*isr, leads})),
        )
        self.happened(self.state.registered(record, self.now_ms))

    @property
    def leads(self) -> bool:
        """Whether it does."""
        return self.state.role is Role.LEADER

    @precondition(lambda self: self.leads)
    @rule(count=st.integers(1, 5), acks=st.sampled_from((ACKS_ALL, ACKS_LEADER)))
    def append(self, count: int, acks: int) -> None:
        """A producer sends, and waits."""
        self.happened(self.state.appended(self.state.log_end_offset + count))
        last = self.state.log_end_offset - 1

        def acknowledged(problem: object) -> None:
            if self.state.role is not Role.LEADER:
                return
            assert self.state.local_end_offset > last
            assert acks == ACKS_LEADER or self.state.high_watermark > last

        if not self.state.may_acknowledge(last, acks):
            self.acknowledgements.add(last, acks, acknowledged)

    @precondition(lambda self: not self.leads)
    @rule(count=st.integers(1, 5), high_watermark=st.integers(0, 50))
    def copy(self, count: int, high_watermark: int) -> None:
        """A fetch from the leader was answered."""
        self.happened(self.state.appended(self.state.log_end_offset + count))
        self.happened(self.state.leader_high_watermark(high_watermark))

    @precondition(lambda self: not self.leads)
    @rule(back=st.integers(0, 5))
    def cut(self, back: int) -> None:
        """The leader has less; never less than what is committed, as elections are clean."""
        self.state.truncated(max(self.state.log_end_offset - back, self.state.high_watermark))

    @rule(behind=st.integers(0, 5))
    def flush(self, behind: int) -> None:
        """A sync is over, of what was there when it began."""
        self.happened(self.state.flushed(max(0, self.state.log_end_offset - behind)))

    @precondition(lambda self: self.leads)
    @rule(replica=st.sampled_from((SECOND, THIRD)), behind=st.integers(0, 8))
    def fetch(self, replica: int, behind: int) -> None:
        """A follower has so much, and no less than before."""
        offset = max(self.fetched[replica], self.state.log_end_offset - behind)
        self.fetched[replica] = offset
        eligible = self.now_ms % 3 > 0
        fetched = self.state.fetched(replica, offset, self.now_ms, eligible=eligible, lag_max_ms=LAG_MAX_MS)
        self.happened(fetched)

    @rule(replica=st.sampled_from((SECOND, THIRD)))
    def fence(self, replica: int) -> None:
        """A follower's broker is gone."""
        self.happened(self.state.ineligible(replica))

    @rule(passed=st.integers(1, 2 * LAG_MAX_MS))
    def wait(self, passed: int) -> None:
        """Time goes by."""
        self.now_ms += passed
        self.happened(self.state.time_passed(self.now_ms, LAG_MAX_MS))

    @precondition(lambda self: self.asked)
    @rule(outcome=st.sampled_from(("done", "not done", "lost")), newest=st.booleans())
    def answer(self, outcome: str, newest: bool) -> None:
        """The controller answers something that it was asked, now or long ago."""
        asked = self.asked.pop() if newest else self.asked.pop(0)
        current = asked.leader_epoch == self.epoch and asked.partition_epoch == self.partition_epoch
        if outcome == "done" and current:
            self.partition_epoch += 1
            self.happened(self.state.isr_altered(replace(asked, partition_epoch=self.partition_epoch)))
        else:
            self.happened(self.state.isr_refused(asked, undone=outcome == "not done" and current))

    @rule(leads=st.sampled_from((ME, SECOND, THIRD)), isr=st.sets(st.sampled_from((ME, SECOND, THIRD))))
    def elect(self, leads: int, isr: set[int]) -> None:
        """A leader in a new epoch, of whose ISR each one has all that is committed."""
        self.epoch += 1
        if leads == ME:
            isr = {replica for replica in isr if self.fetched.get(replica, 0) >= self.highest}
        self.fetched = {replica: min(end, self.state.log_end_offset) for replica, end in self.fetched.items()}
        self._register(leads, isr)

    @rule(written_counts=st.booleans(), min_isr=st.integers(1, 3))
    def configure(self, written_counts: bool, min_isr: int) -> None:
        """An operator changes the topic."""
        self.happened(self.state.configured(written_counts=written_counts, min_isr=min_isr))

    @rule(first_unstable=st.none() | st.integers(0, 50))
    def transact(self, first_unstable: int | None) -> None:
        """Transactions begin and end."""
        self.state.transactions_restored(first_unstable)

    @invariant()
    def offsets_are_in_order(self) -> None:
        """Stable ≤ committed ≤ end, and nothing that was committed falls back."""
        state = self.state
        assert state.last_stable_offset <= state.high_watermark <= state.log_end_offset
        assert state.flushed_offset <= state.log_end_offset
        assert state.high_watermark == self.highest

    @invariant()
    def epochs_are_monotone(self) -> None:
        """Neither the leader's nor the partition's goes back."""
        epochs = (self.state.leader_epoch, self.state.partition_epoch)
        assert epochs[0] >= self.epochs[0]
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        """What may be acknowledged was."""
        left: list[int] = []
        for waiting, acks in (
            (self.acknowledgements._committed, ACKS_ALL),
            (self.acknowledgements._local, ACKS_LEADER),
        ):
            left += [last for last, _ in waiting if self.leads and self.state.may_acknowledge(last, acks)]
        assert not left


TestThreeReplicas = ThreeReplicas.TestCase
TestThreeReplicas.settings = settings(max_examples=100, stateful_step_count=30)
TestThreeReplicas.pytestmark = [pytest.mark.slow]
