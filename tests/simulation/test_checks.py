"""Each check finds the history that was made for it, and leaves alone the one beside it that is right."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.checks import TopicRules, check
from tests.simulation.history import (
    Commit,
    Committed,
    Deed,
    DeleteRecords,
    EndOffset,
    FinalRead,
    Happening,
    History,
    Outcome,
    Ownership,
    Partition,
    Poll,
    Revoked,
    Seen,
    Send,
    TopicDeed,
    line_of,
    partition_of,
    shown,
    value_of,
)
from tests.simulation.linearizable import IMPOSSIBLE, Step, unexplained

A = Partition("a", 0)
B = Partition("a", 1)


class Made(History):
    """A history written by hand: each call is asked and answered before the next one."""

    def value(self, name: str, partition: Partition = A) -> bytes:
        process, _, number = name.partition("#")
        return value_of(process, int(number), partition)

    def send(self, name: str, offset: int | None, partition: Partition = A, **more: Any) -> Send:
        value = None if name.endswith("!") else self.value(name, partition)
        send = Send(process=name.partition("#")[0], partition=partition, value=value, offset=offset, **more)
        self.begin(send)
        return self.end(send, Outcome.OK if offset is not None else Outcome.INFO)

    def poll(self, process: str, *names: str, group: str | None = None, partition: Partition = A) -> Poll:
        """Records named "p#1@5"."""
        return self.note(Poll(process=process, records=self.seen(*names, partition=partition), group=group))

    def seen(self, *names: str, partition: Partition = A) -> list[Seen]:
        parts = (name.partition("@") for name in names)
        return [Seen(partition, int(offset), self.value(name, partition)) for name, _, offset in parts]

    def final(self, *names: str, start: int = 0, end: int | None = None, partition: Partition = A) -> FinalRead:
        records = self.seen(*names, partition=partition)
        end = end if end is not None else records[-1].offset + 1 if records else start
        return self.note(FinalRead(process="final", partition=partition, start=start, end=end, records=records))

    def owns(self, process: str, generation: int, *partitions: Partition, new: Any = None) -> Ownership:
        owned = frozenset(partitions)
        fresh = owned if new is None else frozenset(new)
        if all(operation.process != process for operation in self.operations):
            self.note(Happening(process=process, kind="start"))
        return self.note(
            Ownership(process=process, group="g", member=process, generation=generation, owned=owned, new=fresh)
        )

    def commit(self, process: str, offset: int, generation: int = -1, *, ok: bool = True) -> Commit:
        commit = Commit(process=process, group="g", partition=A, offset=offset, member=process, generation=generation)
        return self.end(self.begin(commit), Outcome.OK if ok else Outcome.INFO)

    def committed(self, process: str, offset: int | None) -> Committed:
        return self.note(Committed(process=process, group="g", partition=A, offset=offset))

    def topic(self, deed: Deed, *, outcome: Outcome = Outcome.OK, **more: Any) -> TopicDeed:
        topic_deed = TopicDeed(process="admin", topic="t", deed=deed, **more)
        return self.end(self.begin(topic_deed), outcome)


def unknown_end(history: Made) -> None:
    history.send("p#1", 0)
    history.poll("c", "p#1@0")
    history.final("p#1@0")


def two_values_at_an_offset(history: Made) -> None:
    history.send("p#1", 0)
    history.poll("c", "q#1@0")


def one_value_seen_twice(history: Made) -> None:
    history.send("p#1", 0)
    history.poll("c", "p#1@0")
    history.poll("d", "p#1@0")


def a_value_at_two_offsets(history: Made) -> None:
    history.send("p#1", 0)
    history.final("p#1@0", "p#1@1")


def a_value_of_a_plain_producer_at_two_offsets(history: Made) -> None:
    history.send("p#1", 0, idempotent=False)
    history.final("p#1@0", "p#1@1")


def an_acknowledged_record_behind_the_end(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.final("p#1@0")


def a_record_acknowledged_somewhere(history: Made) -> None:
    history.end(history.begin(Send(process="p", partition=A, value=history.value("p#1"))))
    history.final()


def an_unacknowledged_record_behind_the_end(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", None)
    history.final("p#1@0")


def a_record_read_and_gone(history: Made) -> None:
    history.send("p#1", None)
    history.poll("c", "p#1@0")
    history.final()


def damage_that_nobody_told(history: Made) -> None:
    history.note(Happening(process="world", kind="damage", text="a-0/0.log", partition=A))
    an_acknowledged_record_behind_the_end(history)


def damage_that_was_told(history: Made) -> None:
    history.note(Happening(process="node", kind="warning", text="a-0: 1 record is cut off"))
    damage_that_nobody_told(history)


def records_gone_from_the_start(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.final("p#2@1", start=1)


def records_deleted_from_the_start(history: Made) -> None:
    history.note(DeleteRecords(process="admin", partition=A, before=1))
    records_gone_from_the_start(history)


def a_record_too_many_deleted(history: Made) -> None:
    history.note(DeleteRecords(process="admin", partition=A, before=1))
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.send("p#3", 2)
    history.final("p#3@2", start=1)


def readers_who_disagree(history: Made) -> None:
    history.send("p#1", 0)
    history.final("p#1@0")
    history.final(end=1)


def a_reader_who_skips(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.send("p#3", 2)
    history.poll("c", "p#1@0")
    history.poll("c", "p#3@2")


def a_reader_who_jumps_over_nothing(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#3", 2)
    history.poll("c", "p#1@0", "p#3@2")


def a_reader_who_goes_back(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.poll("c", "p#2@1")
    history.poll("c", "p#1@0")


def a_reader_who_is_given_the_partition_anew(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.owns("c", 1, A)
    history.poll("c", "p#1@0", "p#2@1", group="g")
    history.owns("c", 2, A)
    history.poll("c", "p#1@0", group="g")


def sends_out_of_order(history: Made) -> None:
    history.send("p#1", 1)
    history.send("p#2", None)
    history.poll("c", "p#2@0")


def sends_of_two_out_of_order(history: Made) -> None:
    first = history.begin(Send(process="p", partition=A, value=history.value("p#1"), offset=1))
    history.send("q#2", 0)
    history.end(first)


def an_offset_below_one_acknowledged_before(history: Made) -> None:
    history.send("p#1", 1)
    history.send("q#2", 0)


def an_end_that_falls_back(history: Made) -> None:
    history.note(EndOffset(process="c", partition=A, offset=5))
    history.note(EndOffset(process="d", partition=A, offset=4))


def an_end_below_what_was_read(history: Made) -> None:
    history.send("p#1", None)
    history.poll("c", "p#1@0")
    history.note(EndOffset(process="c", partition=A, offset=0))


def an_end_asked_for_before_it_grew(history: Made) -> None:
    asked = history.begin(EndOffset(process="c", partition=A))
    history.note(EndOffset(process="d", partition=A, offset=5))
    asked.offset = 4
    history.end(asked)


def a_record_elsewhere(history: Made) -> None:
    history.note(Poll(process="c", records=[Seen(B, 0, history.value("p#1", A))]))


def a_damaged_record(history: Made) -> None:
    history.note(Poll(process="c", records=[Seen(A, 0, history.value("p#1", A)[:-1] + b"?")]))


def a_commit_that_is_forgotten(history: Made) -> None:
    history.commit("c", 5)
    history.committed("d", None)


def a_commit_that_went_back(history: Made) -> None:
    history.commit("c", 5)
    history.commit("c", 7)
    history.committed("d", 5)


def a_commit_that_may_have_been(history: Made) -> None:
    history.commit("c", 5)
    history.commit("c", 7, ok=False)
    history.committed("d", 5)
    history.committed("d", 7)


def a_commit_that_may_not_have_been_both(history: Made) -> None:
    history.commit("c", 5)
    history.commit("c", 7, ok=False)
    history.committed("d", 7)
    history.committed("d", 5)


def a_beginning_that_was_not_committed(history: Made) -> None:
    history.send("p#1", 0)
    history.owns("c", 1, A)
    history.poll("c", "p#1@0", group="g")
    history.commit("c", 1, 1)
    history.owns("d", 2, A)
    history.poll("d", "p#1@0", group="g")


def a_beginning_where_it_was_committed(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.owns("c", 1, A)
    history.poll("c", "p#1@0", group="g")
    history.commit("c", 1, 1)
    history.owns("d", 2, A)
    history.poll("d", "p#2@1", group="g")


def two_owners(history: Made) -> None:
    history.owns("c", 1, A)
    history.owns("d", 1, A, B)


def owners_one_after_the_other(history: Made) -> None:
    history.owns("c", 1, A)
    history.owns("d", 2, A)


def a_poll_after_a_revoke(history: Made) -> None:
    history.owns("c", 1, A)
    history.note(Revoked(process="c", group="g", partitions=frozenset([A])))
    history.poll("c", "p#1@0", group="g")


def a_poll_across_a_revoke(history: Made) -> None:
    history.owns("c", 1, A)
    poll = history.begin(Poll(process="c", group="g", records=history.seen("p#1@0")))
    history.note(Revoked(process="c", group="g", partitions=frozenset([A])))
    history.end(poll)


def a_commit_of_a_zombie(history: Made) -> None:
    history.owns("c", 1, A)
    history.owns("d", 2, A)
    history.commit("c", 1, 1)


def a_commit_begun_before_the_next_generation(history: Made) -> None:
    history.owns("c", 1, A)
    commit = history.begin(Commit(process="c", group="g", partition=A, offset=1, member="c", generation=1))
    history.owns("d", 2, A)
    history.end(commit)


def a_commit_behind_what_was_read(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.poll("c", "p#1@0", group="g")
    history.commit("c", 2, 1)


def a_producer_that_lost_track(history: Made) -> None:
    history.note(Happening(process="p", kind="refused", text="a-0: OUT_OF_ORDER_SEQUENCE_NUMBER"))


def a_group_that_misses_a_record(history: Made) -> None:
    history.send("p#1", 0)
    history.send("p#2", 1)
    history.owns("c", 1, A)
    history.poll("c", "p#1@0", group="g")
    history.note(Happening(process="world", kind="converged"))


def a_group_that_had_no_time(history: Made) -> None:
    history.send("p#1", 0)
    history.owns("c", 1, A)


def a_topic_that_is_forgotten(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=1)
    history.topic(Deed.LOOK, exists=False)


def a_topic_that_may_be_deleted(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=1)
    history.topic(Deed.DELETE, outcome=Outcome.INFO)
    history.topic(Deed.LOOK, exists=True, partitions=1)
    history.topic(Deed.LOOK, exists=False)


def a_topic_that_is_deleted_and_back(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=1)
    history.topic(Deed.DELETE, outcome=Outcome.INFO)
    history.topic(Deed.LOOK, exists=False)
    history.topic(Deed.LOOK, exists=True, partitions=1)


def a_topic_that_shrinks(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=1)
    history.topic(Deed.GROW, partitions=3)
    history.topic(Deed.LOOK, exists=True, partitions=1)


def a_setting_that_is_forgotten(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=1, setting="1")
    history.topic(Deed.CONFIGURE, setting="2")
    history.topic(Deed.LOOK, exists=True, setting="1")


def a_topic_created_twice_by_a_retry(history: Made) -> None:
    history.topic(Deed.CREATE, partitions=2, outcome=Outcome.FAIL, exists=True)
    history.topic(Deed.LOOK, exists=True, partitions=2)


def a_delete_that_takes_effect_too_late(history: Made) -> None:
    """A minute after its client went away it is still there: then it stays."""
    clock = 0.0
    history.now_ms = lambda: clock
    history.topic(Deed.CREATE, partitions=1)
    history.topic(Deed.DELETE, outcome=Outcome.INFO)
    clock = 61_000.0
    history.topic(Deed.LOOK, exists=True, partitions=1)
    history.topic(Deed.LOOK, exists=False)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (unknown_end, set()),
        (two_values_at_an_offset, {"inconsistent offsets"}),
        (one_value_seen_twice, set()),
        (a_value_at_two_offsets, {"duplicate"}),
        (a_value_of_a_plain_producer_at_two_offsets, set()),
        (an_acknowledged_record_behind_the_end, {"lost write"}),
        (an_unacknowledged_record_behind_the_end, set()),
        (a_record_acknowledged_somewhere, {"lost write"}),
        (a_record_read_and_gone, {"read and lost"}),
        (damage_that_nobody_told, {"lost write"}),
        (damage_that_was_told, set()),
        (records_gone_from_the_start, {"records removed"}),
        (records_deleted_from_the_start, set()),
        (a_record_too_many_deleted, {"lost write"}),
        (readers_who_disagree, {"disagreeing readers", "lost write", "read and lost"}),
        (a_reader_who_skips, {"poll skip"}),
        (a_reader_who_jumps_over_nothing, set()),
        (a_reader_who_goes_back, {"non-monotonic poll"}),
        (a_reader_who_is_given_the_partition_anew, set()),
        (sends_out_of_order, {"non-monotonic send"}),
        (sends_of_two_out_of_order, set()),
        (an_offset_below_one_acknowledged_before, {"offset regress"}),
        (an_end_that_falls_back, {"end offset regress"}),
        (an_end_below_what_was_read, {"end offset regress"}),
        (an_end_asked_for_before_it_grew, set()),
        (a_record_elsewhere, {"misrouted or damaged"}),
        (a_damaged_record, {"misrouted or damaged"}),
        (a_commit_that_is_forgotten, {"committed offset"}),
        (a_commit_that_went_back, {"committed offset"}),
        (a_commit_that_may_have_been, set()),
        (a_commit_that_may_not_have_been_both, {"committed offset"}),
        (a_beginning_that_was_not_committed, {"committed offset"}),
        (a_beginning_where_it_was_committed, set()),
        (two_owners, {"double ownership"}),
        (owners_one_after_the_other, set()),
        (a_poll_after_a_revoke, {"poll after revoke"}),
        (a_poll_across_a_revoke, set()),
        (a_commit_of_a_zombie, {"zombie commit"}),
        (a_commit_begun_before_the_next_generation, set()),
        (a_commit_behind_what_was_read, {"passed over"}),
        (a_producer_that_lost_track, {"lost track"}),
        (a_group_that_misses_a_record, {"undelivered"}),
        (a_group_that_had_no_time, set()),
        (a_topic_that_is_forgotten, {"topic"}),
        (a_topic_that_may_be_deleted, set()),
        (a_topic_that_is_deleted_and_back, {"topic"}),
        (a_topic_that_shrinks, {"topic"}),
        (a_setting_that_is_forgotten, {"topic"}),
        (a_topic_created_twice_by_a_retry, set()),
        (a_delete_that_takes_effect_too_late, {"topic"}),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_a_history_made_for_a_check(make: Callable[[Made], None], names: set[str]) -> None:
    """Exactly the anomalies that were put into it are found."""
    history = Made()
    make(history)
    assert {anomaly.name for anomaly in check(history, {})} == names


def test_retention_may_remove_what_is_above_its_limit_and_no_more() -> None:
    """Records that went are judged by what is left."""
    for limit, wrong in ((100, False), (1000, True)):
        history = Made()
        records_gone_from_the_start(history)
        rules = {"a": TopicRules(cut=True, retention_bytes=limit)}
        assert [anomaly.name for anomaly in check(history, rules)] == ["records removed"] * wrong


def compacted(*final: Seen, tombstone: bool, damaged: bool = False) -> set[str]:
    history = Made()
    if damaged:
        history.note(Happening(process="node", kind="warning", text="a-0: 1 record is cut off"))
        history.note(Happening(process="world", kind="damage", text="a-0/0.log", partition=A))
    for number, offset in ((1, 0), (2, 1)):
        history.send(f"p#{number}", offset, key=b"k")
    if tombstone:
        history.note(Send(process="p", partition=A, value=None, key=b"k", offset=2))
    history.note(FinalRead(process="final", partition=A, start=0, end=3, records=final))
    return {anomaly.name for anomaly in check(history, {"a": TopicRules(compacted=True)})}


def test_compaction_keeps_the_last_value_of_a_key() -> None:
    """Older ones may go, the last one may not; behind a tombstone that is gone nothing may come back."""
    old, new = Seen(A, 0, value_of("p", 1, A), b"k"), Seen(A, 1, value_of("p", 2, A), b"k")
    assert compacted(new, tombstone=False) == set()
    assert compacted(old, new, tombstone=False) == set()
    assert compacted(old, tombstone=False) == {"compaction lost a key"}
    assert compacted(old, tombstone=False, damaged=True) == set()
    assert compacted(tombstone=True) == set()
    assert compacted(new, Seen(A, 2, None, b"k"), tombstone=True) == set()
    assert compacted(new, tombstone=True) == {"compaction revived a key"}


def test_a_topic_that_trades_safety_may_lose_its_end_but_no_reader_may_skip() -> None:
    """After a power cut other records have the old offsets; a reader is given all of those that stay."""
    rules = {"a": TopicRules(durable=False)}
    for again, wrong in ((["q#1@1"], False), ([], True)):
        history = Made()
        history.note(Happening(process="world", kind="power cut"))
        for number in range(3):
            history.send(f"p#{number}", number)
        history.poll("c", "p#0@0", "p#1@1", "p#2@2")
        history.send("q#1", 1)
        history.send("q#2", 2)
        history.send("q#3", 3)
        history.poll("c", *again, *(["q#2@2"] if again else []), "q#3@3")
        history.final("p#0@0", "q#1@1", "q#2@2", "q#3@3")
        assert [anomaly.name for anomaly in check(history, rules)] == ["skipped after loss"] * wrong


@pytest.mark.parametrize(
    ("read", "wrong"),
    [(["p#0@0", "q#1@1"], False), (["q#1@1", "q#2@2", "p#0@5"], False), (["q#2@2", "p#0@4"], True)],
)
def test_a_record_that_was_written_twice_is_known_by_its_offset(read: list[str], wrong: bool) -> None:
    """Reading the first of both says nothing of what lies between them; jumping over them does."""
    history, rules = Made(), {"a": TopicRules(durable=False)}
    history.note(Happening(process="world", kind="power cut"))
    history.poll("c", *read)
    history.final("p#0@0", "q#1@1", "q#2@2", "q#3@3", "p#0@4")
    assert [anomaly.name for anomaly in check(history, rules)] == ["skipped after loss"] * wrong


@pytest.mark.parametrize("given_up", [False, True])
def test_who_gave_a_partition_up_to_others_does_not_read_what_they_read(given_up: bool) -> None:
    """It goes on where they were; without that it has jumped."""
    history, rules = Made(), {"a": TopicRules(durable=False)}
    history.note(Happening(process="world", kind="power cut"))
    history.poll("c", "p#0@0")
    if given_up:
        history.note(Revoked(process="c", group="g", partitions=frozenset([A])))
    history.poll("c", "p#3@3")
    history.final("p#0@0", "q#1@1", "q#2@2", "p#3@3")
    assert [anomaly.name for anomaly in check(history, rules)] == ["skipped after loss"] * (not given_up)


def test_a_producer_may_lose_track_where_records_may_be_lost() -> None:
    """The broker has forgotten what it had acknowledged."""
    history = Made()
    history.note(Happening(process="world", kind="power cut"))
    a_producer_that_lost_track(history)
    assert check(history, {"a": TopicRules(durable=False)}) == []


@pytest.mark.parametrize(("cut", "place", "wrong"), [(True, "a-0", False), (True, "a-1", True), (False, "a-0", True)])
def test_a_producer_may_be_forgotten_with_its_records(cut: bool, place: str, wrong: bool) -> None:
    """Where they may be deleted, and there was no room for a snapshot of that partition."""
    history = Made()
    text = (
        f"the producers' snapshot of {place} at offset 19 cannot be written, the next start reads more instead: no room"
    )
    history.note(Happening(process="n1", kind="warning", text=text))
    a_producer_that_lost_track(history)
    assert bool(check(history, {"a": TopicRules(cut=cut)})) is wrong


def test_the_search_needs_an_order_that_respects_time() -> None:
    """A read beside two writes may see either; one after both sees the second or, where they overlap, either."""

    def write(value: int, invoked: int, returned: int) -> Step:
        return Step(invoked=invoked, returned=returned, certain=True, apply=lambda _: value)

    def read(value: int, invoked: int, returned: int) -> Step:
        return Step(
            invoked=invoked,
            returned=returned,
            certain=True,
            apply=lambda state: state if state == value else IMPOSSIBLE,
        )

    assert unexplained([write(1, 1, 4), write(2, 2, 3), read(1, 5, 6)], 0) is None
    assert unexplained([write(1, 1, 4), write(2, 2, 3), read(2, 5, 6)], 0) is None
    assert unexplained([write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)], 0) is not None
    assert unexplained([write(1, 1, 4), write(2, 2, 3), read(1, 5, 6), read(2, 7, 8)], 0) is not None


def test_a_value_says_where_it_belongs() -> None:
    """A flipped bit shows, and a line of the history is short."""
    value = value_of("producer-1", 7, A, filler=10)
    assert partition_of(value) == A
    assert partition_of(value.replace(b"|7|", b"|8|")) is None
    assert shown(value) == "producer-1#7"
    history = History()
    send = history.note(Send(process="producer-1", partition=A, value=value, offset=3))
    assert line_of(send) == "     0.000 ms  producer-1   send producer-1#7 to a-0 at 3"
    assert list(history.lines()) == [line_of(send)]
