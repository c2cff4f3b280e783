"""One shard of `__transaction_state`: who gets which epoch, who is fenced, what is written down."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.busway_bus.transactions.conftest import P0, P1, Bench

from busway_bus.kernel.limits import TRANSACTION_BYTES, TRANSACTION_PARTITION_BYTES, TRANSACTION_PARTITIONS_MAX
from busway_bus.transactions.shard import Change, TransactionShard, transactions_share
from busway_bus.transactions.states import State
from busway_bus.transactions.transaction import EPOCH_MAX
from busway_protocol.errors import ErrorCode, KafkaError, MalformedMessage

FENCED, BUSY = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
UNMAPPED, NOT_SO = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE


def test_each_beginning_gets_the_next_epoch(bench: Bench) -> None:
    """And fences the one before in everything it asks for."""
    first, second = bench.begin(), bench.begin()
    assert (first, second) == ((100, 0), (100, 1))
    assert bench.add(first) is FENCED
    assert bench.end(first, client=0) is FENCED
    assert bench.end(first) is FENCED
    with pytest.raises(KafkaError, match="fenced"):
        bench.shard.verify("x", first, (P0,))
    assert bench.begin(first) is FENCED


def test_a_commit_raises_the_epoch_and_is_answered_again(bench: Bench) -> None:
    """Version 2: the next epoch with each end; a repeated EndTxn gets the same answer, the opposite one is refused."""
    begun = bench.begin()
    assert bench.add(begun, P0, P1) is ErrorCode.NONE
    assert bench.end(begun) == (100, 1)
    assert bench.end(begun) is BUSY
    assert bench.transaction().marker(7).producer_epoch == 1
    assert bench.complete()
    assert bench.end(begun) == (100, 1)
    assert bench.end(begun, commit=False) is NOT_SO
    assert bench.transaction().state is State.COMPLETE_COMMIT
    assert bench.transaction().partitions == frozenset()


def test_an_old_client_keeps_its_epoch(bench: Bench) -> None:
    """EndTxn before version 5: commit, abort, and each again; its marker says so."""
    begun = bench.begin()
    for commit in (True, False):
        assert bench.add(begun, client=0) is ErrorCode.NONE
        assert bench.end(begun, commit=commit, client=0) == begun
        assert bench.transaction().marker(0).transaction_version == 0
        assert bench.end(begun, commit=commit, client=0) is BUSY
        assert bench.complete()
        assert bench.end(begun, commit=commit, client=0) == begun
        assert bench.end(begun, commit=not commit, client=0) is NOT_SO


def test_who_was_taken_over_from_is_not_told_the_end_of_another(bench: Bench) -> None:
    """An end that left the epoch as it was belongs to no producer of the epoch before: that producer would go on as the one that fenced it."""
    zombie = bench.begin()
    current = bench.begin()
    for commit in (True, False):
        assert bench.add(current, client=0) is ErrorCode.NONE
        assert bench.end(current, commit=commit, client=0) == current
        assert bench.complete()
        assert bench.end(zombie, commit=commit) is FENCED


def test_there_is_nothing_to_commit_before_a_partition_is_added(bench: Bench) -> None:
    """A client of version 2 may abort: it cannot know."""
    begun = bench.begin()
    assert bench.end(begun) is NOT_SO
    assert bench.end(begun, client=0) is NOT_SO
    assert bench.end(begun, commit=False, client=0) is NOT_SO
    bench.now += 5
    assert bench.end(begun, commit=False) == (100, 1)
    assert (bench.transaction().state, bench.transaction().started_ms) == (State.PREPARE_ABORT, bench.now)
    assert bench.complete()
    assert bench.end((100, 1), commit=False) == (100, 2)


def test_nothing_is_added_while_a_transaction_ends(bench: Bench) -> None:
    """The id that its end will give included, and neither is a producer begun."""
    begun = bench.begin()
    bench.add(begun)
    bench.end(begun)
    assert bench.add((100, 1)) is BUSY
    assert bench.begin() is BUSY
    bench.complete()
    assert bench.add((100, 1)) is ErrorCode.NONE


def test_unknown_ids_are_told_so(bench: Bench) -> None:
    """Another producer id, or no such transactional id."""
    assert bench.add((1, 0)) is UNMAPPED
    assert bench.end((1, 0)) is UNMAPPED
    assert bench.end((1, 0), client=0) is UNMAPPED
    begun = bench.begin()
    assert bench.add((begun[0] + 1, 0)) is UNMAPPED
    assert bench.end((begun[0] + 1, 0)) is UNMAPPED


def test_a_new_producer_aborts_what_is_open(bench: Bench) -> None:
    """Two epochs pass: one with which the markers are written, and its own."""
    begun = bench.begin()
    bench.add(begun)
    assert bench.begin() == "aborting"
    assert (bench.transaction().state, bench.transaction().epoch) == (State.PREPARE_ABORT, 1)
    bench.complete()
    assert bench.begin() == (100, 2)
    assert bench.end(begun, commit=False) is FENCED
    assert bench.begin(begun) is FENCED


def test_a_zombie_does_not_abort_its_successors_transaction(bench: Bench) -> None:
    """It names its old identity: fenced, and what is open stays so."""
    old = bench.begin()
    new = bench.begin()
    bench.add(new)
    assert bench.begin(old) is FENCED
    assert bench.transaction().state is State.ONGOING
    assert bench.begin(new) == "aborting"


def test_a_repeated_beginning_gets_the_same_epoch(bench: Bench) -> None:
    """KIP-360: who names the identity that it had may ask again, until another producer begins."""
    begun = bench.begin()
    raised = bench.begin(begun)
    assert raised == (100, 1)
    assert bench.begin(begun) == raised
    bench.add(raised)
    assert bench.begin(begun) is FENCED, (
        "its answer came: a transaction is open, and would go on with what it has not sent"
    )
    assert bench.transaction().state is State.ONGOING
    assert bench.end(raised, client=0) == raised
    assert bench.complete()
    assert bench.begin(raised) == (100, 2)
    assert bench.begin() == (100, 3)
    assert bench.begin(begun) is FENCED
    assert bench.begin((7, 3)) is FENCED


def test_used_up_epochs_give_a_new_id_at_the_beginning(bench: Bench) -> None:
    """Also to who asks again, and never an epoch that is kept for fencing."""
    old = bench.at(EPOCH_MAX - 1)
    new = bench.begin(old)
    assert new == (101, 0)
    assert bench.begin(old) == new
    assert bench.begin() == (101, 1)
    assert bench.begin(old) is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_used_up_epochs_give_a_new_id_at_the_end(bench: Bench, commit: bool) -> None:
    """The markers carry the last epoch of the old id; the answer, and the repeated one, the new id; the log says both meanwhile."""
    old = bench.at(EPOCH_MAX - 1)
    bench.add(old)
    assert bench.end(old, commit=commit) == (101, 0)
    known = bench.transaction()
    assert (known.producer_id, known.epoch, known.next_producer_id) == (100, EPOCH_MAX, 101)
    assert bench.add((101, 0)) is BUSY
    assert bench.end(old, commit=commit) is BUSY
    assert bench.complete()
    assert bench.end(old, commit=commit) == (101, 0)
    assert bench.end(old, commit=not commit) is NOT_SO
    zombie = (100, EPOCH_MAX - 2)
    assert bench.end(zombie, commit=commit) is UNMAPPED, "only the last epoch of the old id may ask again"
    assert bench.add((101, 0)) is ErrorCode.NONE
    assert bench.end(old, commit=commit) is UNMAPPED


@pytest.mark.parametrize(("server", "after"), [(2, (101, 1)), (0, (101, 0))])
def test_the_last_epoch_is_fenced_too(bench_of: Callable[[int], Bench], server: int, after: tuple[int, int]) -> None:
    """The markers have the largest epoch there is, and the next producer gets a new id, with the abort or after it."""
    bench = bench_of(server)
    bench.add(bench.at(EPOCH_MAX - 1))
    assert bench.begin() == "aborting"
    assert bench.transaction().epoch == EPOCH_MAX
    bench.complete()
    assert bench.begin() == after


def test_what_is_overdue_in_its_last_epoch_gets_a_new_id(bench: Bench) -> None:
    """It is asked for, given, and used for one transaction alone."""
    for name in ("x", "y"):
        bench.begin(name=name)
        known = bench.transaction(name).initialized(1, EPOCH_MAX - 1, -1, bench.now)
        bench.shard.apply(Change(name, known), bench.now)
        bench.add((known.producer_id, known.epoch), name=name)
    bench.now += 5
    first = bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 10))
    assert (first.ending, first.needs_id) == ([], True)
    for number, name in enumerate(("x", "y")):
        then = bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 10, 500 + number))
        assert (then.ending, then.needs_id) == ([name], name == "x")
        assert bench.transaction(name).next_producer_id == 500 + number


def test_only_what_was_added_is_verified(bench: Bench) -> None:
    """TRANSACTION_ABORTABLE for the rest, and for everything before and after; nothing while it is ending."""
    begun = bench.begin()
    codes = bench.shard.verify("x", begun, (P0,))
    assert codes == {P0: ErrorCode.TRANSACTION_ABORTABLE}
    bench.add(begun)
    codes = bench.shard.verify("x", begun, (P0, P1))
    assert codes == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    bench.end(begun, client=0)
    with pytest.raises(KafkaError) as refused:
        bench.shard.verify("x", begun, (P0,))
    assert refused.value.code is BUSY
    bench.complete()
    assert bench.shard.verify("x", begun, (P0,)) == {P0: ErrorCode.TRANSACTION_ABORTABLE}


def test_what_is_open_for_too_long_is_aborted(bench: Bench) -> None:
    """From the first partition on, not from the last one; so many at a time."""
    for name in "abc":
        begun = bench.begin(timeout_ms=1_000, name=name)
        bench.add(begun, name=name)
    bench.now += 1_000
    bench.add(bench.begin(name="d"), name="d")
    bench.add((bench.transaction("c").producer_id, 0), P1, name="c")
    assert bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 10)).ending == []
    bench.now += 1
    assert bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 2)).ending == ["a", "b"]
    assert bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 2)).ending == ["c"]
    assert bench.transaction("c").epoch == 1
    assert set(bench.shard.prepared) == {"a", "b", "c"}
    assert bench.add((bench.transaction("a").producer_id, 0), name="a") is BUSY


def test_an_abort_that_cannot_be_written_is_due_again(bench: Bench) -> None:
    """A full disk: nothing has happened, and it is looked at the next time."""
    bench.add(bench.begin(timeout_ms=1))
    bench.now += 2
    for _ in range(2):
        decision = bench.shard.timed_out(bench.now, bench.levels(0), 10)
        assert decision.reply.ending == ["x"]
    assert bench.transaction().state is State.ONGOING
    bench.carry_out(decision)
    assert bench.shard.timed_out(bench.now, bench.levels(0), 10).reply.ending == []


def test_a_timeout_counts_for_one_transaction(bench: Bench) -> None:
    """The next one of the same id has its own."""
    begun = bench.begin(timeout_ms=1_000)
    bench.add(begun)
    bench.now += 900
    ended = bench.end(begun)
    bench.complete()
    bench.add(ended)
    bench.now += 900
    assert bench.shard.timed_out(bench.now, bench.levels(0), 10).reply.ending == []
    bench.now += 101
    assert bench.shard.timed_out(bench.now, bench.levels(0), 10).reply.ending == ["x"]


def test_ids_that_nobody_uses_are_forgotten(bench: Bench) -> None:
    """Not what is open or ending; a producer that comes back begins again."""
    idle = bench.begin(name="idle")
    bench.add(bench.begin(name="open"), name="open")
    ending = bench.begin(name="ending")
    bench.add(ending, name="ending")
    bench.end(ending, name="ending")
    names = ("idle", "open", "ending", "none")
    assert bench.shard.expire(names, bench.now - 1).records == ()
    bench.carry_out(bench.shard.expire(names, bench.now))
    assert set(bench.shard.transactions) == {"open", "ending"}
    assert bench.add(idle, name="idle") is UNMAPPED
    assert bench.begin(name="idle") == (103, 0)


def test_there_is_a_bound_for_ids_and_for_partitions(bench: Bench) -> None:
    """Anybody may make ids; each record names all partitions."""
    begun = bench.begin()
    assert bench.add(begun, *(("t", number) for number in range(TRANSACTION_PARTITIONS_MAX))) is ErrorCode.NONE
    assert bench.add(begun, ("u", 0)) is ErrorCode.POLICY_VIOLATION
    held = bench.shard.held_bytes
    bench.end(begun)
    bench.complete()
    assert 0 < bench.shard.held_bytes < held
    bench.shard.apply(Change("x", None), 0)
    assert bench.shard.held_bytes == 0


def test_a_host_that_makes_ids_without_end_leaves_room_to_others() -> None:
    """Neither by new ids nor by their partitions may it have more than it leaves free; the others have theirs."""
    size = TRANSACTION_BYTES + 2 * len("id0")
    bench = Bench(limit=8 * size)
    begun = [bench.begin(name=f"id{number}", host="greedy") for number in range(5)]
    assert begun[4] is ErrorCode.POLICY_VIOLATION
    many = [("t", number) for number in range(size // TRANSACTION_PARTITION_BYTES)]
    assert bench.add(begun[0], *many, name="id0", host="greedy") is ErrorCode.POLICY_VIOLATION
    assert bench.transaction("id0").state is State.EMPTY
    modest = bench.begin(name="id5", host="modest")
    assert bench.add(modest, *many[:1], name="id5", host="modest") is ErrorCode.NONE
    assert (bench.share.of("greedy"), bench.share.of("modest")) == (4 * size, size + TRANSACTION_PARTITION_BYTES)
    assert bench.begin(begun[3], name="id3", host="modest") == (begun[3][0], 1), "an id that is there takes no more"
    assert (bench.share.of("greedy"), bench.share.of("modest")) == (3 * size, 2 * size + TRANSACTION_PARTITION_BYTES)
    assert bench.begin(name="id4", host="greedy") is ErrorCode.POLICY_VIOLATION
    bench.carry_out(bench.shard.expire(["id1", "id2", "id5"], bench.now))
    bench.end(modest, name="id5")
    bench.complete("id5")
    assert (bench.share.of("greedy"), bench.share.of("modest")) == (size, 2 * size)
    assert bench.begin(name="id4", host="greedy") != ErrorCode.POLICY_VIOLATION


def test_what_is_read_from_the_log_is_nobodys_until_it_is_used() -> None:
    """A shard that is let go gives back what was counted for it, and the next one counts it for all together."""
    bench = Bench()
    identity = bench.begin(host="h")
    held = bench.share.of("h")
    assert held == bench.share.used > 0
    bench.shard = TransactionShard(bench.share)
    assert bench.share.used == bench.share.of("h") == 0
    for change in bench.written:
        key, value = TransactionShard.encode(change)
        decoded = TransactionShard.decode(key, value)
        assert decoded is not None
        bench.shard.apply(decoded, bench.now)
    assert (bench.share.used, bench.share.of("h")) == (held, 0)
    bench.add(identity, host="h")
    assert bench.share.used == bench.share.of("h") > held


def test_at_level_0_everybody_is_an_old_client(bench_of: Callable[[int], Bench]) -> None:
    """The epoch stays, also with EndTxn 5, and values are of version 0, which older brokers read; a fenced one moves by one."""
    bench = bench_of(0)
    begun = bench.begin()
    bench.add(begun)
    assert bench.end(begun) == begun
    bench.complete()
    bench.add(begun)
    assert bench.begin() == "aborting"
    assert bench.transaction().epoch == 1
    bench.complete()
    assert bench.begin() == (100, 2)
    values = [TransactionShard.encode(change)[1] for change in bench.written]
    assert {value[:2] for value in values if value is not None} == {b"\x00\x00"}


def test_unreadable_records_are_refused_or_gone_past() -> None:
    """Another type of key is of a later version; another version of a value, or a state that there is not, is damage."""
    assert TransactionShard.decode(b"\x00\x01rest", None) is None
    key, value = TransactionShard.encode(Bench().shard_change())
    assert value is not None
    with pytest.raises(MalformedMessage, match="version 9"):
        TransactionShard.decode(key, b"\x00\x09" + value[2:])
    broken = bytearray(value)
    broken[2 + 8 + 2 + 4] = 77
    with pytest.raises(MalformedMessage, match="77"):
        TransactionShard.decode(key, bytes(broken))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "again", "add", "commit", "abort", "complete", "late", "expire"]),
        st.sampled_from(["x", "y"]),
        st.integers(0, 3),
        st.sampled_from([0, 2]),
    ),
    max_size=40,
)


@given(steps=STEPS, server=st.sampled_from([0, 1, 2]))
def test_what_a_reader_of_the_log_has_is_what_there_is(steps: list[tuple[str, str, int, int]], server: int) -> None:
    """After any requests: the last record of each key makes the same table, but for the last epoch, which the log does not keep; no
    transition is outside the table, and of two identities that were given out the newer one is always the larger."""
    bench = Bench(server)
    given_out: dict[str, list[tuple[int, int]]] = {"x": [], "y": []}
    for what, name, back, client in steps:
        bench.now += 7
        known = given_out[name]
        identity = known[-1 - back] if back < len(known) else (1, 1)
        answer: object = None
        if what == "begin":
            answer = bench.begin(name=name, timeout_ms=20)
        elif what == "again":
            answer = bench.begin(identity, name=name, timeout_ms=20)
        elif what == "add":
            bench.add(identity, ("t", back), client=client, name=name)
        elif what in {"commit", "abort"}:
            answer = bench.end(identity, commit=what == "commit", client=client, name=name)
        elif what == "complete" and name in bench.shard.transactions:
            bench.complete(name)
        elif what == "late":
            bench.carry_out(bench.shard.timed_out(bench.now, bench.levels(0), 1))
        elif what == "expire":
            bench.carry_out(bench.shard.expire((name,), bench.now - 30))
        if isinstance(answer, tuple):
            assert not known or answer >= known[-1]
            known.append(answer)
    last = {}
    for change in bench.written:
        key, value = TransactionShard.encode(change)
        last[key] = value
    reader = TransactionShard(transactions_share())
    for key, value in last.items():
        decoded = TransactionShard.decode(key, value)
        if decoded is not None and decoded.transaction is not None:
            reader.apply(decoded, bench.now)
    tagged = ("last_epoch", "previous_producer_id", "next_producer_id", "client_version")
    plain = tagged[:1] if server else tagged

    def shown(shard: TransactionShard) -> dict[str, dict[str, object]]:
        return {
            name: {field: getattr(known, field) for field in known.__slots__ if field not in plain}
            for name, known in shard.transactions.items()
        }

    assert shown(reader) == shown(bench.shard)
    assert reader.prepared.keys() == bench.shard.prepared.keys()
    assert reader.held_bytes == bench.shard.held_bytes
