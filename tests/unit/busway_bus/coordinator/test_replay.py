"""What counts of a log that transactions write to, and in which order a shard applies it."""

from collections.abc import Generator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_bus.coordinator.replay import apply_records, latest_records
from busway_bus.kernel.decision import Decision, Waiter
from busway_bus.kernel.open_transactions import OpenTransactions
from busway_protocol.records.batch import CorruptBatch
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import end_transaction_marker

Entry = tuple[str, str | None]


class Plain:
    """A shard of texts by name, which knows no transactions."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    @staticmethod
    def encode(record: Entry) -> tuple[bytes, bytes | None]:
        name, text = record
        return name.encode(), None if text is None else text.encode()

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Entry | None:
        return None if key == b"?" else (key.decode(), None if value is None else value.decode())

    def apply(self, record: Entry, now: int) -> None:
        name, text = record
        if text is None:
            self.texts.pop(name, None)
        else:
            self.texts[name] = text

    def next_deadline(self) -> int | None:
        return None

    def tick(self, now: int) -> Decision[None]:
        return Decision(reply=None)

    def unloaded(self) -> list[Waiter]:
        return []


class Texts(Plain):
    """One that does."""

    def __init__(self) -> None:
        super().__init__()
        self.open: OpenTransactions[str, str] = OpenTransactions()

    def apply(self, record: Entry, now: int) -> None:
        super().apply(record, now)
        (self.open.forget if record[1] is None else self.open.overtake)(record[0])

    def apply_pending(self, record: Entry, producer_id: int, now: int, host: str = "") -> None:
        name, text = record
        assert text is not None
        self.open.put(producer_id, name, text)

    def end_transaction(self, producer_id: int, now: int, *, committed: bool) -> None:
        self.texts.update(self.open.end(producer_id, committed=committed))


def batch(*records: Entry, producer_id: int = -1) -> bytes:
    transactional = producer_id >= 0
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0 if transactional else -1, transactional=transactional
    )
    for record in records:
        builder.append(0, *Plain.encode(record))
    return builder.build()


def marker(producer_id: int, *, committed: bool) -> bytes:
    return end_transaction_marker(producer_id, 0, committed=committed, coordinator_epoch=0, timestamp_ms=0)


def outcome(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value


def loaded(batches: Iterable[bytes], shard: Plain | None = None) -> Plain:
    shard = shard or Texts()
    outcome(apply_records(shard, outcome(latest_records(shard, batches)), 0))
    return shard


def test_what_was_aborted_is_never_told() -> None:
    """Nor what is open, which is in force with its marker, were it to come."""
    log = [batch(("a", "1")), batch(("a", "2"), ("b", "2"), producer_id=7), batch(("a", "3"), producer_id=8)]
    assert loaded(log).texts == {"a": "1"}
    assert loaded([*log, marker(7, committed=False)]).texts == {"a": "1"}
    assert loaded([*log, marker(7, committed=True)]).texts == {"a": "2", "b": "2"}
    shard = loaded([*log, marker(7, committed=False)])
    assert isinstance(shard, Texts)
    shard.end_transaction(8, 0, committed=True)
    assert shard.texts == {"a": "3"}


def test_a_shard_without_transactions_has_nothing_open() -> None:
    """What a producer left in its log counts when it was committed."""
    log = [
        batch(("a", "1")),
        batch(("a", "2"), producer_id=7),
        batch(("b", "3"), producer_id=8),
        marker(8, committed=True),
    ]
    assert loaded(log, Plain()).texts == {"a": "1", "b": "3"}


def test_types_that_are_not_known_are_gone_past() -> None:
    """Within transactions too."""
    assert loaded([batch(("?", "1"), ("a", "1")), batch(("?", "2"), producer_id=7)]).texts == {"a": "1"}


def test_damage_is_told() -> None:
    """A marker as well as records."""
    for intact in (batch(("a", "1")), marker(7, committed=True)):
        damaged = intact[:-1] + bytes([intact[-1] ^ 1])
        with pytest.raises(CorruptBatch):
            loaded([damaged])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.sampled_from("abc"), st.sampled_from([-1, 7, 8, 9])),
        st.tuples(st.just("tombstone"), st.sampled_from("abc")),
        st.tuples(st.just("end"), st.sampled_from([7, 8, 9]), st.booleans()),
    ),
    max_size=30,
)


@given(STEPS)
def test_what_was_loaded_is_what_was_there(steps: list[tuple[Any, ...]]) -> None:
    """After any sequence of records, tombstones and markers, and whatever the open transactions come to afterwards."""
    live, log = Texts(), []
    for number, step in enumerate(steps):
        match step:
            case "records", name, -1:
                live.apply((name, str(number)), 0)
                log.append(batch((name, str(number))))
            case "records", name, producer_id:
                live.apply_pending((name, str(number)), producer_id, 0)
                log.append(batch((name, str(number)), producer_id=producer_id))
            case "tombstone", name:
                live.apply((name, None), 0)
                log.append(batch((name, None)))
            case "end", producer_id, committed:
                live.end_transaction(producer_id, 0, committed=committed)
                log.append(marker(producer_id, committed=committed))
    again = loaded(log)
    assert isinstance(again, Texts)
    assert again.texts == live.texts
    assert sorted(again.open.all()) == sorted(live.open.all())
    for producer_id in (8, 9, 7):
        live.end_transaction(producer_id, 0, committed=True)
        again.end_transaction(producer_id, 0, committed=True)
        assert again.texts == live.texts
