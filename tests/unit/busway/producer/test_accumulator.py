"""Batches of a producer: what fills and closes one, sequence numbers, splits and expiry."""

from typing import Any

import pytest

from busway.producer.accumulator import EPOCH_MAX, Accumulator, Batch
from busway_protocol.records.batch import read_header

T = ("t", 0)


def accumulator(**changes: Any) -> Accumulator:
    """Batches of 1,000 bytes that wait for 5 s."""
    options: dict[str, Any] = {"batch_size": 1_000, "linger_s": 5.0, "compression": "none"}
    return Accumulator(**{**options, **changes})


def add(batches: Accumulator, *, now: float = 0.0, size: int = 100, partition: tuple[str, int] = T) -> bool:
    """Append a record of about `size` bytes."""
    return batches.append(partition, now, 1_000, None, b"v" * size, b"\x00", size, object())


def header(batch: Batch) -> Any:
    """The header of an encoded batch."""
    assert batch.encoded is not None
    return read_header(memoryview(batch.encoded))


def test_a_batch_waits_until_it_is_due_or_full() -> None:
    """The first record opens a batch; linger, a full batch or a flush makes it ready."""
    batches = accumulator()
    assert add(batches), "opened"
    assert not add(batches, now=1.0)
    assert batches.ready(1.0) == ([], 5.0)
    assert batches.ready(5.0) == ([T], None)
    batches.flushing = 1
    assert batches.ready(1.0) == ([T], None)
    batches.flushing = 0
    assert add(batches, now=1.0, size=900), "does not fit: the next batch is opened, the first is full"
    assert batches.ready(1.0) == ([T], None)


def test_one_batch_of_a_partition_is_in_flight() -> None:
    """Later batches wait for the first; other partitions do not."""
    batches = accumulator()
    add(batches, size=990)
    add(batches, size=990)
    add(batches, size=990, partition=("t", 1))
    first = batches.take(T, -1)
    assert batches.is_under_way(first)
    assert batches.ready(0.0) == ([("t", 1)], None)
    batches.acknowledged(first)
    assert first.settled
    assert batches.ready(9.0) == ([T, ("t", 1)], None)


def test_sequence_numbers_follow_what_was_acknowledged() -> None:
    """Written batches advance the sequence number; a batch that was surely not written leaves no gap."""
    batches = accumulator()
    add(batches, size=990)
    add(batches, size=990)
    add(batches, size=990)
    first = batches.take(T, 7)
    assert (header(first).producer_id, header(first).base_sequence) == (7, 0)
    batches.acknowledged(first)
    second = batches.take(T, 7)
    assert header(second).base_sequence == 1
    assert not batches.failed(second), "never sent: the epoch stays"
    third = batches.take(T, 7)
    assert (header(third).base_sequence, header(third).producer_epoch) == (1, 0)


def test_an_uncertain_failure_ends_the_epoch() -> None:
    """A batch that may have been written would make the next one a duplicate in its epoch."""
    batches = accumulator()
    add(batches, size=990)
    add(batches, size=990)
    first = batches.take(T, 7)
    first.uncertain = True
    assert batches.failed(first)
    second = batches.take(T, 7)
    assert (header(second).base_sequence, header(second).producer_epoch) == (0, 1)


def test_the_last_epoch_needs_another_producer_id() -> None:
    """After epoch 32,767 the partition waits for a new producer id."""
    batches = accumulator()
    add(batches)
    batch = batches.take(T, 7)
    for _ in range(EPOCH_MAX + 1):
        batches.retry_renewed(batch, 0.0)
        batch = batches.take(T, 7) if not batches.lacks_identity(T, 7) else batch
    assert batches.lacks_identity(T, 7)
    assert not batches.lacks_identity(T, 8)
    assert header(batches.take(T, 8)).producer_id == 8


def test_a_retry_waits_and_keeps_its_bytes() -> None:
    """The same bytes are sent again, not before their time, although the batch is not due otherwise."""
    batches = accumulator()
    add(batches)
    encoded = batches.take(T, 7).encoded
    batches.retry(batches.all_batches()[0], 3.0)
    assert batches.ready(2.0) == ([], 3.0)
    assert batches.ready(3.0) == ([T], None)
    assert batches.take(T, 7).encoded is encoded


def test_a_batch_too_large_for_its_topic_is_halved() -> None:
    """Both halves have all records and waiters in order; later batches are smaller."""
    batches = accumulator()
    waiters = [object() for _ in range(4)]
    for waiter in waiters:
        batches.append(T, 0.0, 1_000, None, b"v" * 200, b"\x00", 200, waiter)
    batches.split(batches.take(T, -1))
    first, second = batches.all_batches()
    assert first.builder.count + second.builder.count == 4
    assert [waiter for batch in (first, second) for _, _, waiter in batch.waiters] == waiters
    assert [position for position, _, _ in second.waiters] == list(range(second.builder.count))
    assert batches.buffered == 800
    add(batches, size=600)
    assert len(batches.all_batches()) == 3, "a record of 600 bytes is above the new limit, and alone"


def test_expired_batches_are_named_once() -> None:
    """One in flight is given up: only its sequence numbers matter from then on."""
    batches = accumulator()
    add(batches, size=990)
    add(batches, now=2.0, size=990)
    first = batches.take(T, 7)
    assert batches.expired(9.0, 10.0) == ([], 10.0)
    assert batches.expired(10.0, 10.0) == ([first], 12.0)
    assert first.given_up
    assert batches.expired(11.0, 10.0) == ([], 12.0)
    expired, _ = batches.expired(12.0, 10.0)
    assert len(expired) == 1
    assert not expired[0].given_up, "it was not in flight"


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_transactions_epoch_begins_at_sequence_0(epoch: int) -> None:
    """The coordinator's epoch is that of all partitions; its change restarts the sequence."""
    batches = accumulator(transactional=True)
    add(batches, size=990)
    add(batches, size=990)
    batches.acknowledged(batches.take(T, 7, 1))
    batch = batches.take(T, 7, epoch)
    assert (header(batch).producer_epoch, header(batch).base_sequence) == (epoch, 1 if epoch == 1 else 0)
