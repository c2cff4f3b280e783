"""A follower's next step, and the offset that it truncates at: the cases of KIP-101 and KIP-279."""

import pytest

from busway_bus.log.epochs import LeaderEpochs
from busway_bus.replication.following import (
    Append,
    Ignore,
    LookUp,
    ReplicaLog,
    Restart,
    Retry,
    Truncate,
    Wait,
    out_of_range,
    step,
)
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData


def log_with(epochs: dict[int, int], end_offset: int, *, leader_epoch: int = 9, start_offset: int = 0) -> ReplicaLog:
    known = LeaderEpochs()
    for epoch, offset in epochs.items():
        known.assign(epoch, offset)
    return ReplicaLog(start_offset=start_offset, end_offset=end_offset, leader_epoch=leader_epoch, epochs=known)


def asked(log: ReplicaLog) -> FetchPartition:
    return FetchPartition(
        partition=0,
        current_leader_epoch=log.leader_epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.epochs.latest,
        partition_max_bytes=1,
    )


def answer(code: ErrorCode = ErrorCode.NONE, *, diverging: tuple[int, int] | None = None) -> PartitionData:
    data = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=7,
        log_start_offset=2,
        aborted_transactions=None,
        records=b"batch",
    )
    if diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return data


def test_records_are_appended_with_the_leaders_offsets() -> None:
    """An answer without records still has them."""
    log = log_with({3: 0}, 10)
    assert step(log, asked(log), answer()) == Append(records=b"batch", high_watermark=7, log_start_offset=2)
    empty = answer()
    empty.records = None
    assert step(log, asked(log), empty) == Append(records=b"", high_watermark=7, log_start_offset=2)


@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        pytest.param({3: 0, 5: 6}, (5, 8), 8, id="the leader's epoch ends earlier"),
        pytest.param({3: 0, 5: 6}, (3, 9), 6, id="an epoch that the leader never had is cut off"),
        pytest.param({3: 0, 5: 6}, (4, 9), 6, id="the epoch is missing here: cut behind the one before"),
        pytest.param({5: 0}, (4, 3), 0, id="no smaller epoch here: all goes"),
        pytest.param({3: 0, 5: 6}, (5, 20), 10, id="the leader has more: only an epoch without records goes"),
    ],
)
def test_a_diverging_log_is_truncated(epochs: dict[int, int], diverging: tuple[int, int], offset: int) -> None:
    """The log ends at 10."""
    log = log_with(epochs, 10)
    assert step(log, asked(log), answer(diverging=diverging)) == Truncate(offset)


def test_an_answer_to_an_older_state_is_ignored() -> None:
    """The log or the leader's epoch has changed since the request, whatever the answer says."""
    log = log_with({3: 0}, 10)
    for older in (log_with({3: 0}, 9), log_with({3: 0}, 10, leader_epoch=8)):
        assert step(log, asked(older), answer()) == Ignore()
        assert step(log, asked(older), answer(ErrorCode.OFFSET_OUT_OF_RANGE)) == Ignore()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, LookUp()),
        (ErrorCode.FENCED_LEADER_EPOCH, Wait()),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Retry(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Retry(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (ErrorCode.KAFKA_STORAGE_ERROR, Retry(ErrorCode.KAFKA_STORAGE_ERROR)),
    ],
)
def test_errors(code: ErrorCode, expected: object) -> None:
    """A newer epoch of the leader reaches this broker by the metadata; a fetch with the old one is in vain."""
    log = log_with({3: 0}, 10)
    assert step(log, asked(log), answer(code)) == expected


def test_a_log_outside_of_the_leaders() -> None:
    """Behind its start everything goes, beyond its end the rest; in between nothing does."""
    log = log_with({3: 0}, 10)
    assert out_of_range(log, leader_start=12, leader_end=20) == Restart(12)
    assert out_of_range(log, leader_start=0, leader_end=6) == Truncate(6)
    assert out_of_range(log, leader_start=10, leader_end=10) == Ignore()
    assert out_of_range(log, leader_start=3, leader_end=15) == Ignore()
