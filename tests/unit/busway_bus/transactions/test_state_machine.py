"""Any order of a transactional id's calls, right and wrong ones, by several producers: what a model answers, the shard answers.

The model knows no states: only who has the id now, what is open, what is being ended, and which identity the last answer took the place of.
"""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.busway_bus.transactions.conftest import P0, P1, Bench

from busway_bus.transactions.fencing import Identity
from busway_bus.transactions.shard import TransactionShard, transactions_share
from busway_bus.transactions.states import State
from busway_bus.transactions.transaction import EPOCH_MAX, TopicPartition
from busway_protocol.errors import ErrorCode, KafkaError

FENCED, BUSY, NONE = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE
UNMAPPED, NOT_SO = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
TIMEOUT_MS = 60_000
PRODUCERS = st.sampled_from("abc")
CLIENTS = st.sampled_from([2, 2, 0])


@dataclass(frozen=True)
class End:
    """How a transaction ends.

    Attributes:
        ran_as: who wrote it.
        after: who its producer is from then on.
        raises: whether that is another identity.
    """

    ran_as: Identity
    commit: bool
    after: Identity
    raises: bool


class Transactions(RuleBasedStateMachine):
    """One transactional id, and three processes that were given it."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.current: Identity | None = None
        self.opened: set[TopicPartition] | None = None
        self.opened_ms = 0
        self.ending: End | None = None
        self.ended: End | None = None
        self.before: Identity | None = None
        """A client that names this one has not heard of the current one."""
        self.used_up: Identity | None = None
        """The last one of the producer id before this one, as long as nothing was done with the new one."""
        self.had: dict[str, list[Identity]] = {name: [] for name in "abc"}
        self.of: dict[Identity, str] = {}

    @initialize(epoch=st.sampled_from([None, None, EPOCH_MAX - 4, EPOCH_MAX - 2, EPOCH_MAX - 1]))
    def is_known(self, epoch: int | None) -> None:
        """Or will be; perhaps with few epochs left."""
        if epoch is not None:
            self.current = self.bench.at(epoch)
            self.given("a", self.current)

    def given(self, name: str, identity: Identity) -> None:
        """To one process: no other ever gets the same."""
        assert self.of.setdefault(identity, name) == name, f"{identity} is that of {self.of[identity]} too"
        self.had[name].append(identity)

    def identity(self, name: str, age: int) -> Identity:
        """What a process takes for its own: what it was given last, or earlier."""
        had = self.had[name]
        return had[-min(age, len(had))] if had else (7, 0)

    def raised(self) -> Identity:
        """After the current one."""
        assert self.current is not None
        producer_id, epoch = self.current
        return (self.bench.next_id, 0) if epoch >= EPOCH_MAX - 1 else (producer_id, epoch + 1)

    def stranger(self, identity: Identity) -> ErrorCode | None:
        """Return the error for a client that is not the current producer."""
        if self.current is None or identity[0] != self.holder()[0]:
            return UNMAPPED
        return FENCED if identity != self.holder() else None

    def holder(self) -> Identity:
        """The identity that the markers have while an end is under way, else the current one."""
        assert self.current is not None
        if self.ending is None or not self.ending.raises:
            return self.current
        return self.current[0], self.current[1] + 1

    # What producers ask for

    @rule(name=PRODUCERS)
    def begins(self, name: str) -> None:
        """A process starts and knows nothing."""
        self.init(name, None)

    @rule(name=PRODUCERS, age=st.integers(1, 3))
    def goes_on(self, name: str, age: int) -> None:
        """A process names what it had (KIP-360)."""
        self.init(name, self.identity(name, age))

    def init(self, name: str, expected: Identity | None) -> None:
        repeats = expected is not None and expected == self.before and self.opened is None
        aborts = False
        if self.current is None:
            wanted: Any = (self.bench.next_id, 0)
        elif self.ending is not None:
            wanted = BUSY
        elif expected not in {None, self.current}:
            wanted = self.current if repeats else FENCED
        elif self.opened is not None:
            wanted, aborts = "aborting", True
        else:
            wanted, repeats = self.raised(), False
        end = End(self.current, commit=False, after=self.raised(), raises=True) if aborts and self.current else None
        assert self.bench.begin(expected) == wanted
        if end is not None:
            self.decided(end)
        elif isinstance(wanted, tuple):
            if not repeats:
                self.before = expected if self.current is not None else None
                self.becomes(wanted)
            self.ended = None
            self.given(name, wanted)

    @rule(name=PRODUCERS, age=st.sampled_from([1, 1, 2]), place=st.sampled_from([P0, P1]), client=CLIENTS)
    def adds(self, name: str, age: int, place: TopicPartition, client: int) -> None:
        """A partition to its transaction."""
        identity = self.identity(name, age)
        wanted = UNMAPPED if self.current is None else BUSY if self.ending else self.stranger(identity) or NONE
        assert self.bench.add(identity, place, client=client) is wanted
        if wanted is NONE:
            if self.opened is None:
                self.opened, self.opened_ms = set(), self.bench.now
            self.opened.add(place)
            self.ended = self.used_up = None
            if self.before is not None and self.before[0] != identity[0]:
                self.before = None

    @rule(name=PRODUCERS, age=st.sampled_from([1, 1, 2]))
    def writes(self, name: str, age: int) -> None:
        """To both partitions; the broker asks whether they are in the transaction (KIP-890)."""
        identity = self.identity(name, age)
        try:
            error_code: Any = self.bench.shard.verify("x", identity, (P0, P1))
        except KafkaError as problem:
            error_code = problem.code
        there = self.opened or set()
        wanted = self.stranger(identity) or (
            BUSY if self.ending else {place: NONE if place in there else ABORTABLE for place in (P0, P1)}
        )
        assert error_code == wanted

    @rule(name=PRODUCERS, age=st.sampled_from([1, 1, 2, 3]), commit=st.booleans(), client=CLIENTS)
    def ends(self, name: str, age: int, commit: bool, client: int) -> None:
        """Its transaction; with version 2 it has another identity afterwards."""
        identity = self.identity(name, age)
        wanted, end = self.end_of(identity, commit=commit, client=client)
        assert self.bench.end(identity, commit=commit, client=client) == wanted
        if end is not None:
            self.decided(end)
        if isinstance(wanted, tuple):
            self.given(self.of[identity], wanted)

    def end_of(self, identity: Identity, *, commit: bool, client: int) -> tuple[Any, End | None]:
        """The answer, and what is decided with it."""
        if self.current is None:
            return UNMAPPED, None
        ended = self.ended
        if client < 2:
            if (stranger := self.stranger(identity)) is not None:
                return stranger, None
            if self.ending is not None:
                return BUSY, None
            if self.opened is not None:
                return identity, End(identity, commit, after=identity, raises=False)
            return identity if ended is not None and ended.commit == commit else NOT_SO, None
        if self.ending is not None:
            return BUSY, None
        if identity == self.current:
            if self.opened is None and commit:
                return NOT_SO, None
            return self.raised(), End(identity, commit, after=self.raised(), raises=True)
        if ended is not None and ended.raises and ended.ran_as == identity:
            return self.current if ended.commit == commit else NOT_SO, None
        return FENCED if identity == self.used_up else self.stranger(identity), None

    # What the coordinator does

    def becomes(self, identity: Identity) -> None:
        """The current one, until the next."""
        changes = self.current is not None and identity[0] != self.current[0]
        self.current, self.used_up = identity, self.current if changes else None

    def decided(self, end: End) -> None:
        self.ending, self.opened = end, None
        if end.raises:
            self.before = end.ran_as

    @rule()
    def is_marked(self) -> None:
        """In every partition."""
        if self.ending is None:
            return
        known = self.bench.transaction()
        assert known.marker(0).committed == self.ending.commit
        assert (known.producer_id, known.epoch) == self.holder(), "what the end is written with fences who wrote"
        assert self.bench.complete()
        self.becomes(self.ending.after)
        self.ended, self.ending = self.ending, None

    @rule(ms=st.sampled_from([1, TIMEOUT_MS, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        """What is open for too long is aborted."""
        self.bench.now += ms
        late = self.opened is not None and self.bench.now > self.opened_ms + TIMEOUT_MS
        after = self.raised() if late else None
        new_id = None
        while True:
            decision = self.bench.shard.timed_out(self.bench.now, self.bench.levels(0), 10, new_id)
            overdue = self.bench.carry_out(decision)
            if not overdue.needs_id:
                break
            new_id, self.bench.next_id = self.bench.next_id, self.bench.next_id + 1
        assert overdue.ending == (["x"] if late else [])
        if after is not None and self.current is not None:
            self.decided(End(self.current, commit=False, after=after, raises=True))

    @rule()
    def is_forgotten(self) -> None:
        """It was not used for a week; what is open or being ended is kept."""
        self.bench.carry_out(self.bench.shard.expire(["x"], self.bench.now))
        if self.opened is None and self.ending is None:
            self.current = self.ended = self.before = self.used_up = None

    @rule()
    def crashes(self) -> None:
        """Another coordinator goes on from the log, which does not say whom the last answer was for."""
        self.bench.share, self.bench.shard = self.loaded()
        self.before = None

    def loaded(self) -> tuple[Any, TransactionShard]:
        share = transactions_share()
        shard = TransactionShard(share)
        for change in self.bench.written:
            stored = shard.decode(*shard.encode(change))
            assert stored is not None
            shard.apply(stored, self.bench.now)
        return share, shard

    @invariant()
    def the_log_says_what_is_in_force(self) -> None:
        """All but the epoch that is only known for a repeated question."""
        share, shard = self.loaded()
        assert share.used == self.bench.share.used
        assert shard.prepared == self.bench.shard.prepared
        assert shard.transactions.keys() == self.bench.shard.transactions.keys()
        for name, transaction in self.bench.shard.transactions.items():
            assert replace(shard.transactions[name], last_epoch=-1) == replace(transaction, last_epoch=-1)

    @invariant()
    def what_is_told_of_it_is_so(self) -> None:
        """The partitions, while it is open; that there are markers to be written, while it ends."""
        known = self.bench.shard.transactions.get("x")
        assert (known is None) == (self.current is None)
        if known is not None:
            assert (known.producer_id, known.epoch) == self.holder()
            assert known.state.prepared == (self.ending is not None)
            assert (known.state is State.ONGOING) == (self.opened is not None)
            assert self.opened is None or known.partitions == self.opened


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40)
