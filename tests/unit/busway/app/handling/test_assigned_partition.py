"""What an app commits of a partition: nothing beyond a record that is not finished."""

import pytest

from busway.app.handling.assigned_partition import AssignedPartition
from busway.app.handling.completed_offsets import CompletedOffsets
from busway.types import OffsetAndMetadata, TopicPartition


@pytest.mark.parametrize(("reset_at", "committed"), [(55, 50), (50, 50), (0, 0)])
def test_a_reset_while_records_are_handled_commits_nothing_of_them(reset_at: int, committed: int) -> None:
    """A log that has lost its end still has those before it; a topic that was created again begins below them."""
    assigned = AssignedPartition(TopicPartition("orders", 0), [], CompletedOffsets())
    for offset in range(50, 60):
        assigned.done.begin(offset)
    assigned.reset_at = reset_at
    assert assigned.committable(reset_at) == OffsetAndMetadata(committed)
    assert assigned.committable_with((), reset_at) == OffsetAndMetadata(committed)


def test_where_a_reset_began_is_committed_before_any_record() -> None:
    """So that what comes while the app is down is handled at its next start."""
    assigned = AssignedPartition(TopicPartition("orders", 0), [], CompletedOffsets())
    assert assigned.committable(7) is None
    assigned.reset_at = 7
    assert assigned.committable(7) == OffsetAndMetadata(7)


def test_a_row_put_beside_open_records_commits_nothing_of_them() -> None:
    """Its transaction takes an offset along to show that the instance may write; the records come again after a crash."""
    assigned = AssignedPartition(TopicPartition("orders", 0), [], CompletedOffsets())
    assert assigned.committable_with((), 50) == OffsetAndMetadata(50)
    for offset in range(50, 60):
        assigned.done.begin(offset)
    assert assigned.committable_with((), 60) == OffsetAndMetadata(50)
