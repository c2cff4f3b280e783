"""Lag, and partitions that are stuck."""

from busway.app.monitoring.progress import PartitionProgress, Progress
from busway.types import TopicPartition

ONE = TopicPartition("t", 0)


def of(progress: Progress, now_s: float) -> PartitionProgress:
    """The only partition."""
    (progress_row,) = progress.all(now_s)
    return progress_row


def test_a_partition_with_work_that_does_not_get_on_is_stuck() -> None:
    """Counted from the first look that saw the lag, until a record is finished."""
    progress = Progress()
    progress.assigned([ONE], 0)
    progress.committed({ONE: 5}, 0)
    progress.ends({ONE: 8}, 100)
    assert (of(progress, 100).lag, of(progress, 100).stuck_s, of(progress, 100).idle_s) == (3, 0, 100)
    progress.ends({ONE: 9}, 130)
    assert of(progress, 160).stuck_s == 60
    progress.finished(ONE, 170)
    assert (of(progress, 170).stuck_s, of(progress, 170).idle_s) == (0, 0)
    progress.ends({ONE: 9}, 180)
    progress.committed({ONE: 6}, 200)
    assert of(progress, 210).stuck_s == 0


def test_an_idle_partition_is_not_stuck() -> None:
    """A record that comes after a long silence is no reason for alarm; neither is a partition whose offset is unknown."""
    progress = Progress()
    progress.assigned([ONE], 0)
    progress.ends({ONE: 5}, 10)
    assert (of(progress, 1000).lag, of(progress, 1000).stuck_s) == (None, 0)
    assert progress.unknown == {ONE}
    progress.committed({ONE: 5}, 1000)
    progress.ends({ONE: 5}, 2000)
    progress.ends({ONE: 6}, 5000)
    assert (of(progress, 5000).lag, of(progress, 5000).stuck_s) == (1, 0)


def test_partitions_that_went_are_forgotten() -> None:
    """What is reported of them later is not kept."""
    progress = Progress()
    progress.assigned([ONE], 0)
    progress.revoked([ONE])
    progress.finished(ONE, 1)
    progress.committed({ONE: 1}, 1)
    progress.ends({ONE: 1}, 1)
    assert (progress.all(2), progress.partitions) == ([], frozenset())
