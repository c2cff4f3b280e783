"""Each check of transactions finds the history that was made for it, and leaves alone the one beside it that is right."""

from collections.abc import Callable, Sequence

import pytest

from tests.simulation.checks import TopicRules, check
from tests.simulation.history import Happening, History, Outcome, Partition, Seen, Send, value_of
from tests.simulation.transaction_history import (
    CommittedPoll,
    CommittedRead,
    GroupOffset,
    Source,
    StaleOffsets,
    Transaction,
)

A, B, OUT = Partition("a", 0), Partition("a", 1), Partition("out", 0)


class Made(History):
    """A history written by hand: each call is asked and answered before the next one."""

    def open(self, *names: str, partition: Partition = A) -> Transaction:
        """A transaction with records named "p#1"."""
        process = names[0].partition("#")[0]
        transaction = self.begin(Transaction(process=process, transactional_id="x"))
        self.put(transaction, *names, partition=partition)
        return transaction

    def put(self, transaction: Transaction, *names: str, partition: Partition = A) -> None:
        transaction.values += [(partition, value(name, partition)) for name in names]

    def commit(self, transaction: Transaction, outcome: Outcome = Outcome.OK) -> None:
        transaction.asked = self.mark()
        self.end(transaction, outcome)

    def abort(self, transaction: Transaction) -> None:
        self.end(transaction, Outcome.FAIL)

    def committed(self, *names: str) -> Transaction:
        transaction = self.open(*names)
        self.commit(transaction)
        return transaction

    def poll(self, *names: str, process: str = "c", group: str | None = None) -> None:
        """Records named "p#1@5"."""
        self.note(CommittedPoll(process=process, records=seen(names), group=group))

    def read(self, *names: str, reading: str = "final1", partition: Partition = A) -> None:
        self.note(CommittedRead(process=reading, partition=partition, reading=reading, records=seen(names, partition)))

    def look(self, offset: int | None, *, last: bool = False) -> None:
        self.note(GroupOffset(process="final1", group="g", partition=A, offset=offset, last=last))

    def passes_on(self, name: str, source: int, *, commit: bool = True) -> Transaction:
        """What was read at an offset is written again, and the offset behind it is sent."""
        transaction = self.open(name, partition=OUT)
        transaction.group, transaction.offsets = "g", {A: source + 1}
        transaction.sources = {value(name, OUT): Source(A, source)}
        if commit:
            self.commit(transaction)
        else:
            self.abort(transaction)
        return transaction


def value(name: str, partition: Partition = A) -> bytes:
    process, _, number = name.partition("#")
    return value_of(process, int(number), partition)


def seen(names: Sequence[str], partition: Partition = A) -> list[Seen]:
    parts = (name.partition("@") for name in names)
    return [Seen(partition, int(offset), value(name, partition)) for name, _, offset in parts]


def a_commit_that_is_there(history: Made) -> None:
    history.committed("p#1", "p#2")
    history.poll("p#1@0", "p#2@1")
    history.read("p#1@0", "p#2@1")


def a_commit_that_is_lost(history: Made) -> None:
    history.committed("p#1")
    history.read()


def a_commit_that_nobody_answered(history: Made) -> None:
    history.commit(history.open("p#1", "p#2"), Outcome.INFO)
    history.read()


def a_commit_that_nobody_answered_and_that_is_there(history: Made) -> None:
    history.commit(history.open("p#1", "p#2"), Outcome.INFO)
    history.read("p#1@0", "p#2@1")


def a_part_of_a_transaction(history: Made) -> None:
    history.commit(history.open("p#1", "p#2"), Outcome.INFO)
    history.read("p#1@0")


def a_part_in_another_partition(history: Made) -> None:
    transaction = history.open("p#1")
    history.put(transaction, "p#2", partition=B)
    history.commit(transaction, Outcome.INFO)
    history.read("p#1@0")
    history.read(partition=B)


def a_part_in_a_partition_that_nobody_read(history: Made) -> None:
    transaction = history.open("p#1")
    history.put(transaction, "p#2", partition=B)
    history.commit(transaction, Outcome.INFO)
    history.read("p#1@0")


def an_aborted_record(history: Made) -> None:
    history.abort(history.open("p#1"))
    history.read("p#1@0")


def an_aborted_record_where_a_marker_may_be_cut(history: Made) -> None:
    history.note(Happening(process="world", kind="damage", text="a-0/0.log", partition=A))
    history.note(Happening(process="node", kind="warning", text="a-0: 1 record is cut off"))
    an_aborted_record(history)


def a_record_whose_commit_was_refused(history: Made) -> None:
    history.commit(history.open("p#1"), Outcome.FAIL)
    history.read("p#1@0")


def a_record_of_who_was_killed(history: Made) -> None:
    history.open("p#1")
    history.read("p#1@0")


def a_record_before_its_commit(history: Made) -> None:
    transaction = history.open("p#1")
    history.poll("p#1@0")
    history.commit(transaction)
    history.read("p#1@0")


def a_record_before_its_commit_is_answered(history: Made) -> None:
    transaction = history.open("p#1")
    transaction.asked = history.mark()
    history.poll("p#1@0")
    history.end(transaction)
    history.read("p#1@0")


def a_committed_record_read_and_gone(history: Made) -> None:
    history.commit(history.open("p#1"), Outcome.INFO)
    history.poll("p#1@0")
    history.read()


def a_plain_record_hidden(history: Made) -> None:
    history.note(Send(process="p", partition=A, value=value("p#1"), offset=0))
    history.read()


def a_transaction_out_of_order(history: Made) -> None:
    history.committed("p#1", "p#2")
    history.read("p#2@0", "p#1@1")


def transactions_in_another_order(history: Made) -> None:
    first, second = history.open("p#1"), history.open("q#1")
    history.commit(second)
    history.commit(first)
    history.read("q#1@0", "p#1@1")


def readings_that_differ(history: Made) -> None:
    history.commit(history.open("p#1"), Outcome.INFO)
    history.read()
    history.read("p#1@0", reading="final2")


def a_reader_who_goes_back(history: Made) -> None:
    history.committed("p#1", "p#2")
    history.poll("p#1@0", "p#2@1")
    history.poll("p#2@1")
    history.read("p#1@0", "p#2@1")


def a_flow_that_goes_back(history: Made) -> None:
    history.committed("p#1", "p#2")
    history.poll("p#1@0", "p#2@1", group="g")
    history.poll("p#2@1", group="g")
    history.read("p#1@0", "p#2@1")


def a_reader_who_skips(history: Made) -> None:
    history.committed("p#1", "p#2", "p#3")
    history.poll("p#1@0", "p#3@2")
    history.read("p#1@0", "p#2@1", "p#3@2")


def a_reader_who_skips_the_first(history: Made) -> None:
    history.committed("p#1", "p#2")
    history.poll("p#2@1")
    history.read("p#1@0", "p#2@1")


def a_reader_who_jumps_over_what_was_aborted(history: Made) -> None:
    history.committed("p#1")
    history.abort(history.open("q#1"))
    history.committed("p#3")
    history.poll("p#1@0", "p#3@5")
    history.read("p#1@0", "p#3@5")


def each_passed_on_once(history: Made) -> None:
    history.committed("p#0", "p#1")
    history.passes_on("f#0", 0, commit=False)
    history.passes_on("f#1", 0)
    history.passes_on("f#2", 1)
    history.read("p#0@0", "p#1@1")
    history.read("f#1@1", "f#2@3", partition=OUT)
    history.look(2, last=True)


def one_passed_on_twice(history: Made) -> None:
    history.committed("p#0")
    history.passes_on("f#0", 0)
    history.passes_on("f#1", 0)
    history.read("p#0@0")
    history.read("f#0@0", "f#1@2", partition=OUT)
    history.look(1, last=True)


def one_not_passed_on(history: Made) -> None:
    history.committed("p#0", "p#1")
    history.passes_on("f#1", 1)
    history.read("p#0@0", "p#1@1")
    history.read("f#1@0", partition=OUT)
    history.look(2, last=True)


def one_passed_on_without_its_offset(history: Made) -> None:
    history.committed("p#0", "p#1")
    history.passes_on("f#0", 0)
    transaction = history.open("f#1", partition=OUT)
    transaction.group, transaction.sources = "g", {value("f#1", OUT): Source(A, 1)}
    history.commit(transaction)
    history.read("p#0@0", "p#1@1")
    history.read("f#0@0", "f#1@2", partition=OUT)
    history.look(1, last=True)


def an_offset_of_an_aborted_transaction(history: Made) -> None:
    history.passes_on("f#0", 0, commit=False)
    history.look(1)


def an_offset_before_its_commit(history: Made) -> None:
    transaction = history.open("f#0", partition=OUT)
    transaction.group, transaction.offsets = "g", {A: 1}
    history.look(1)
    history.commit(transaction)


def an_offset_before_its_commit_is_answered(history: Made) -> None:
    transaction = history.open("f#0", partition=OUT)
    transaction.group, transaction.offsets = "g", {A: 1}
    transaction.asked = history.mark()
    history.look(1)
    history.end(transaction)


def an_offset_that_is_lost(history: Made) -> None:
    history.passes_on("f#0", 0)
    history.passes_on("f#1", 1)
    history.look(1)


def an_offset_that_nobody_answered(history: Made) -> None:
    history.passes_on("f#0", 0)
    history.passes_on("f#1", 1).outcome = Outcome.INFO
    history.look(1)


def offsets_of_a_zombie(history: Made) -> None:
    history.note(StaleOffsets(process="f", group="g", generation=1))


def offsets_of_a_zombie_refused(history: Made) -> None:
    history.end(history.begin(StaleOffsets(process="f", group="g", generation=1)), Outcome.INFO)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (a_commit_that_is_there, set()),
        (a_commit_that_is_lost, {"lost commit"}),
        (a_commit_that_nobody_answered, set()),
        (a_commit_that_nobody_answered_and_that_is_there, set()),
        (a_part_of_a_transaction, {"torn transaction"}),
        (a_part_in_another_partition, {"torn transaction"}),
        (a_part_in_a_partition_that_nobody_read, set()),
        (an_aborted_record, {"aborted read"}),
        (an_aborted_record_where_a_marker_may_be_cut, set()),
        (a_record_whose_commit_was_refused, {"aborted read"}),
        (a_record_of_who_was_killed, {"aborted read"}),
        (a_record_before_its_commit, {"read before commit"}),
        (a_record_before_its_commit_is_answered, set()),
        (a_committed_record_read_and_gone, {"committed read and lost"}),
        (a_plain_record_hidden, {"hidden record"}),
        (a_transaction_out_of_order, {"disordered transaction"}),
        (transactions_in_another_order, set()),
        (readings_that_differ, {"disagreeing committed reads"}),
        (a_reader_who_goes_back, {"non-monotonic committed poll"}),
        (a_flow_that_goes_back, set()),
        (a_reader_who_skips, {"committed poll skip"}),
        (a_reader_who_skips_the_first, {"committed poll skip"}),
        (a_reader_who_jumps_over_what_was_aborted, set()),
        (each_passed_on_once, set()),
        (one_passed_on_twice, {"passed on twice"}),
        (one_not_passed_on, {"not passed on"}),
        (one_passed_on_without_its_offset, {"passed on without its offset"}),
        (an_offset_of_an_aborted_transaction, {"uncommitted offset"}),
        (an_offset_before_its_commit, {"uncommitted offset"}),
        (an_offset_before_its_commit_is_answered, set()),
        (an_offset_that_is_lost, {"lost offset"}),
        (an_offset_that_nobody_answered, set()),
        (offsets_of_a_zombie, {"zombie offsets"}),
        (offsets_of_a_zombie_refused, set()),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_history_made_for_a_check(make: Callable[[Made], None], names: set[str]) -> None:
    """Exactly the anomalies that were put into it are found."""
    history = Made()
    make(history)
    assert {anomaly.name for anomaly in check(history, {})} == names


def test_a_topic_that_trades_safety_may_lose_a_commit() -> None:
    """After a power cut."""
    history = Made()
    history.note(Happening(process="world", kind="power cut"))
    a_commit_that_is_lost(history)
    assert check(history, {"a": TopicRules(durable=False)}) == []


# Compacted topics


class Keyed(Made):
    """A history of one key of a compacted topic."""

    def set(self, name: str | None, offset: int, outcome: Outcome = Outcome.OK) -> None:
        """Write a record named "p#1" in a transaction of its own that ends like this; None deletes the key."""
        transaction = self.begin(Transaction(process="p", transactional_id="x"))
        send = Send(process="p", partition=A, value=None if name is None else value(name), key=b"k", offset=offset)
        transaction.sends.append(self.note(send))
        if name is not None:
            self.put(transaction, name)
        if outcome is Outcome.FAIL:
            self.abort(transaction)
        else:
            self.commit(transaction, outcome)

    def there(self, name: str | None, offset: int) -> None:
        """What is there in the end: one record of the key, None for a tombstone."""
        record = Seen(A, offset, None if name is None else value(name), b"k")
        self.note(CommittedRead(process="final1", partition=A, reading="final1", records=[record]))

    def nothing_there(self) -> None:
        self.note(CommittedRead(process="final1", partition=A, reading="final1", records=[]))


def the_last_value(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2)
    history.there("p#2", 2)


def no_value(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2)
    history.nothing_there()


def an_older_value(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2)
    history.there("p#1", 0)


def another_value_at_its_offset(history: Keyed) -> None:
    history.set("p#1", 0)
    history.there("p#9", 0)


def the_value_before_one_that_was_aborted(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2, Outcome.FAIL)
    history.there("p#1", 0)


def no_value_because_of_one_that_was_aborted(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2, Outcome.FAIL)
    history.nothing_there()


def a_value_that_was_aborted(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2, Outcome.FAIL)
    history.there("p#2", 2)


def a_deleted_key(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set(None, 2)
    history.nothing_there()


def a_deleted_key_with_its_tombstone(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set(None, 2)
    history.there(None, 2)


def a_deleted_key_that_is_back(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set(None, 2)
    history.there("p#1", 0)


def no_value_after_a_deletion_that_was_aborted(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set(None, 2, Outcome.FAIL)
    history.nothing_there()


def no_value_after_a_deletion_in_doubt(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set(None, 2, Outcome.INFO)
    history.nothing_there()


def a_value_in_doubt(history: Keyed) -> None:
    history.set("p#1", 0)
    history.set("p#2", 2, Outcome.INFO)
    history.there("p#2", 2)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (the_last_value, set()),
        (no_value, {"compaction lost a key"}),
        (an_older_value, {"compaction revived a key"}),
        (another_value_at_its_offset, {"compaction changed a key"}),
        (the_value_before_one_that_was_aborted, set()),
        (no_value_because_of_one_that_was_aborted, {"compaction lost a key"}),
        (a_value_that_was_aborted, {"compaction kept what does not count", "aborted read"}),
        (a_deleted_key, set()),
        (a_deleted_key_with_its_tombstone, set()),
        (a_deleted_key_that_is_back, {"compaction revived a key"}),
        (no_value_after_a_deletion_that_was_aborted, {"compaction lost a key"}),
        (no_value_after_a_deletion_in_doubt, set()),
        (a_value_in_doubt, set()),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_history_of_a_compacted_topic(make: Callable[[Keyed], None], names: set[str]) -> None:
    """What is committed last of a key is there, and nothing that was deleted or does not count."""
    history = Keyed()
    make(history)
    assert {anomaly.name for anomaly in check(history, {"a": TopicRules(compacted=True)})} == names


def test_a_topic_that_trades_safety_may_lose_the_last_value_of_a_key() -> None:
    """After a power cut."""
    history = Keyed()
    history.note(Happening(process="world", kind="power cut"))
    no_value(history)
    assert check(history, {"a": TopicRules(compacted=True, durable=False)}) == []


# Answers to producers


@pytest.mark.parametrize(
    ("problem", "older", "names"),
    [
        ("INVALID_TXN_STATE: the partition was not added", False, {"transaction refused"}),
        ("INVALID_TXN_STATE: the partition was not added", True, set()),
        ("NOT_ENOUGH_REPLICAS: to be tried again", False, set()),
        ("", False, set()),
    ],
)
def test_a_history_of_a_send_that_was_refused(problem: str, older: bool, names: set[str]) -> None:
    """Only a producer that keeps its epoch over an end may hear that it is in no transaction."""
    history = Made()
    transaction = history.begin(Transaction(process="p", transactional_id="x", older=older))
    send = history.begin(Send(process="p", partition=A, value=value("p#1")))
    transaction.sends.append(history.end(send, Outcome.INFO if problem else Outcome.OK, problem))
    history.abort(transaction)
    assert {anomaly.name for anomaly in check(history, {})} == names


@pytest.mark.parametrize(
    ("problem", "older", "names"),
    [
        ("the transaction has ended meanwhile (TRANSACTION_ABORTABLE)", False, {"transaction refused"}),
        ("the transaction has ended meanwhile (TRANSACTION_ABORTABLE)", True, set()),
        ("the group has moved on (ILLEGAL_GENERATION)", False, set()),
    ],
)
def test_a_history_of_offsets_that_were_refused(problem: str, older: bool, names: set[str]) -> None:
    """The same holds for offsets; that their group has moved on is another matter."""
    history = Made()
    transaction = history.begin(Transaction(process="p", transactional_id="x", older=older, group="g", offsets={A: 1}))
    history.end(transaction, Outcome.FAIL, problem)
    assert {anomaly.name for anomaly in check(history, {})} == names
