"""A follower's log: batches of the leader are written as they are, and it ends with the same bytes, producers and epochs."""

from dataclasses import replace

import pytest

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.inspection import finished, inspect
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.producer_state import Verification
from busway_bus.log.validate import check_batch
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.records.batch import CorruptBatch, read_header
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1, segment_bytes=400)


def opened(files: SimFiles, *, config: LogConfig = CONFIG, flushed: int = 0) -> PartitionLog:
    """The log of one disk."""
    if "t-0" not in files.list("."):
        files.make_directory("t-0")
    return PartitionLog(files, "t-0", config, now_ms=NOW, flushed=flushed)


def batch(values: int = 1, *, producer_id: int = -1, sequence: int = -1, transactional: bool = False) -> bytes:
    """A batch of a client."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )
    for number in range(values):
        builder.append(NOW + number, b"key", b"value")
    return builder.build()


def leading() -> PartitionLog:
    """A log with two epochs, a producer, an aborted and an open transaction, in several segments."""
    log = opened(SimFiles())
    log.begin_epoch(3)
    log.append(batch(3), leader_epoch=3, now_ms=NOW)
    log.append(batch(2, producer_id=7, sequence=0), leader_epoch=3, now_ms=NOW)
    log.begin_epoch(5)
    for producer_id in (8, 9):
        verification = log.producers.verification(
            read_header(batch(2, producer_id=producer_id, sequence=0, transactional=True)), NOW, from_zero=True
        )
        assert isinstance(verification, Verification)
        _append(log, batch(2, producer_id=producer_id, sequence=0, transactional=True), verification)
    log.append_marker(
        EndTransaction(producer_id=8, producer_epoch=0, committed=False, coordinator_epoch=1, transaction_version=0),
        leader_epoch=5,
        now_ms=NOW,
    )
    return log


def _append(log: PartitionLog, records: bytes, verification: Verification) -> None:
    inspected = finished(inspect(records, check_batch(records, CONFIG), CONFIG, NOW))
    log.append_inspected(inspected, leader_epoch=5, now_ms=NOW, verification=verification)


def test_a_follower_ends_with_what_its_leader_has():
    """Bytes, epochs, producers, open and aborted transactions; and the same after a restart."""
    leader, files = leading(), SimFiles()
    follower = opened(files)
    for content in leader.batches():
        follower.append_as_follower(content, now_ms=NOW + 50)
    assert list(follower.batches()) == list(leader.batches())
    assert follower.epochs.entries == leader.epochs.entries == [(3, 0), (5, 5)]
    assert follower.first_unstable_offset == leader.first_unstable_offset == 7
    end = leader.end_offset
    assert follower.committed_slice(0, 9_999, up_to=end)[1] == leader.committed_slice(0, 9_999, up_to=end)[1] != ()
    assert follower.producers.is_open(9, 0)
    assert not follower.producers.is_open(8, 0)
    assert follower.segment_count > 1
    point = follower.flush_point()
    point.sync()
    again = opened(files, flushed=end)
    assert list(again.batches()) == list(leader.batches())
    assert again.first_unstable_offset == 7


def test_what_began_a_transaction_and_what_ended_one_is_known_by_the_append():
    """The state of the partition needs both for the last stable offset."""
    follower = opened(SimFiles())
    infos = [follower.append_as_follower(content, now_ms=NOW) for content in leading().batches()]
    assert [info.began for info in infos] == [False, False, True, True, False]
    ended = infos[-1].ended
    assert ended is not None
    assert (ended.producer_id, ended.first_offset, ended.aborted) == (8, 5, True)


def test_offsets_that_compaction_removed_are_missing_in_the_follower_too():
    """It is cut nowhere by a restart, where the topic is compacted."""
    files, config = SimFiles(), replace(CONFIG, cleanup_policy=("compact",))
    follower = opened(files, config=config)
    first, _, *rest = leading().batches()
    for content in (first, *rest):
        follower.append_as_follower(content, now_ms=NOW)
    assert follower.end_offset == 10
    point = follower.flush_point()
    point.sync()
    again = opened(files, config=config)
    assert list(again.batches()) == [first, *rest]
    assert again.read(3, 9_999, up_to=10).startswith(rest[0])


@pytest.mark.parametrize("damage", ["again", "flipped"])
def test_a_batch_that_does_not_follow_is_refused_and_nothing_is_written(damage):
    """One that is there already, and one that was changed on its way."""
    follower = opened(SimFiles())
    first, second, *_ = leading().batches()
    follower.append_as_follower(first, now_ms=NOW)
    wrong = first if damage == "again" else second[:-1] + bytes([second[-1] ^ 1])
    with pytest.raises(CorruptBatch):
        follower.append_as_follower(wrong, now_ms=NOW)
    assert list(follower.batches()) == [first]


def test_an_epoch_begins_without_records():
    """The end of an earlier epoch is where it begins."""
    log = opened(SimFiles())
    log.append(batch(2), leader_epoch=1, now_ms=NOW)
    log.begin_epoch(4)
    assert log.epochs.end_offset(2, log.end_offset) == (1, 2)
    assert log.epochs.entries == [(1, 0), (4, 2)]
    log.end_epoch()
    assert log.epochs.entries == [(1, 0)]


@pytest.mark.parametrize(("committed", "start_offset"), [(0, 0), (8, 0), (9, 9), (10, 10)])
def test_retention_and_compaction_leave_what_is_not_committed(committed, start_offset):
    """Another leader may have other records there."""
    log = leading()
    point = log.flush_point()
    point.sync()
    log.flushed(point)
    assert [segment.next_offset for segment in log.closed_segments()] == [9]
    log.committed = lambda: committed
    assert [segment.next_offset for segment in log.closed_segments()] == [9] * (committed >= 9)
    log.config = replace(CONFIG, retention_ms=0)
    log.maintain(NOW + 1_000_000)
    assert log.start_offset == start_offset
