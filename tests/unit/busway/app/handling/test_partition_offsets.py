"""Which offset of a partition may be committed, beside its markers and what is finished ahead."""

import pytest

from busway import HandlerFailed, OffsetAndMetadata, TopicPartition
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.partition_offsets import PartitionOffsets


def begun(*offsets: int, exactly_once: bool = True) -> PartitionOffsets:
    """A partition whose records at these offsets were handed out."""
    partition = PartitionOffsets(TopicPartition("t", 3), CompletedOffsets(), exactly_once=exactly_once)
    for offset in offsets:
        partition.done.begin(offset)
    return partition


def test_markers_behind_the_last_record_are_committed_too() -> None:
    """The consumer's position is committed once no record is open, and only then."""
    partition = begun(0, 1)
    partition.done.finish(0)
    assert partition.committable(5) == OffsetAndMetadata(1)
    assert not partition.is_behind(5), "a record is open"
    partition.done.finish(1)
    assert partition.committable(5) == OffsetAndMetadata(5)
    assert partition.is_behind(5)
    partition.committed = OffsetAndMetadata(5)
    assert not partition.is_behind(5)


def test_a_reset_below_is_committed_while_nothing_was_handed_out_since() -> None:
    """A position below the finished records is that of a reset."""
    partition = begun(10)
    partition.done.finish(10)
    assert partition.committable(4) == OffsetAndMetadata(4)


def test_offsets_of_a_transaction_count_as_finished() -> None:
    """Also where earlier records are open; nothing is committed before anything was begun or reset."""
    assert begun().committable_with((), None) is None
    partition = begun(0, 1)
    assert partition.committable_with([0], None) == OffsetAndMetadata(1)
    assert partition.done.all_finished is None, "the transaction may still be aborted"


def test_more_finished_ahead_than_the_metadata_holds_is_refused_by_name() -> None:
    """Every second record of very many is finished: the error names the partition, the offset and the remedy."""
    offsets = range(40_000)
    partition = begun(*offsets)
    with pytest.raises(HandlerFailed, match=r"t-3: .* ahead of offset 0, .*lower concurrency"):
        partition.committable_with([offset for offset in offsets if offset % 7 in {1, 3}], None)
