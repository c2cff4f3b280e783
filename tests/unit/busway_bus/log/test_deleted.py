"""Deleted segments: renamed at once, removed when due, and noted in the log start offset."""

from dataclasses import replace

import pytest

from busway_bus.log.deleted import Deleted, DeletedSegments, date
from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_bus.log.side_files import SideFiles
from busway_bus.log.start_note import noted
from busway_bus.testing.sim_files import SimFiles

NOW = 1_700_000_000_000


@pytest.fixture
def files() -> SimFiles:
    """A disk with the directory of a log."""
    made = SimFiles()
    made.make_directory("t-0")
    return made


def segments(files: SimFiles, *offsets: int) -> list[Segment]:
    """Empty segments, created now."""
    return [Segment(files, "t-0", offset, NOW) for offset in offsets]


def logs(files: SimFiles) -> list[str]:
    """The log files on the disk."""
    return [name for name in files.list("t-0") if ".log" in name]


def test_files_are_renamed_at_once_and_removed_when_due(files: SimFiles) -> None:
    """Between them readers finish; a crash does not bring the segment back."""
    (segment,) = segments(files, 0)
    files.replace("t-0/00000000000000000000.snapshot", b"state")
    entry = Deleted(due_ms=NOW + 60_000, segment=segment, snapshot=True)
    assert not entry.remove(files, "t-0", NOW)
    assert logs(files) == ["00000000000000000000.log.deleted"]
    assert "00000000000000000000.snapshot" not in files.list("t-0")
    assert not entry.remove(files, "t-0", NOW + 59_999)
    assert entry.remove(files, "t-0", NOW + 60_000)
    assert files.list("t-0") == []


def test_a_snapshot_that_is_still_needed_stays(files: SimFiles) -> None:
    """Another segment with the same base offset took the place."""
    (segment,) = segments(files, 0)
    files.replace("t-0/00000000000000000000.snapshot", b"state")
    assert Deleted(due_ms=NOW, segment=segment, snapshot=False).remove(files, "t-0", NOW)
    assert files.list("t-0") == ["00000000000000000000.snapshot"]


def test_the_log_start_offset_is_noted_before_a_file_goes(files: SimFiles) -> None:
    """The largest of all entries; the note is empty once nothing is left to remove."""
    first, second = segments(files, 0, 10)
    deleted = DeletedSegments(files, "t-0", SideFiles(files, "t-0"), start=0)
    deleted.append(Deleted(due_ms=NOW, segment=first, snapshot=False, start=10))
    deleted.append(Deleted(due_ms=NOW + 1, segment=second, snapshot=False, start=20))
    deleted.remove(NOW)
    assert len(deleted) == 1
    assert noted(files.list("t-0")) == [20]
    assert logs(files) == ["00000000000000000010.log.deleted"]
    deleted.remove(None)
    assert len(deleted) == 0
    assert logs(files) == []
    assert noted(files.list("t-0")) == [20]
    assert set(files.sizes("t-0").values()) == {0}


def test_a_replaced_segment_moves_no_start(files: SimFiles) -> None:
    """Compaction deletes segments whose records are elsewhere."""
    deleted = DeletedSegments(files, "t-0", SideFiles(files, "t-0"), start=0)
    deleted.append(Deleted(due_ms=NOW, segment=segments(files, 0)[0], snapshot=False))
    deleted.remove(NOW)
    assert files.list("t-0") == []


def test_nothing_is_removed_after_the_log_is_closed(files: SimFiles) -> None:
    """Its directory may belong to another log by then."""
    side_files = SideFiles(files, "t-0")
    deleted = DeletedSegments(files, "t-0", side_files, start=0)
    deleted.append(Deleted(due_ms=NOW, segment=segments(files, 0)[0], snapshot=False, start=10))
    side_files.closed = True
    deleted.remove(None)
    assert logs(files) == ["00000000000000000000.log"]
    assert noted(files.list("t-0")) == []
    deleted.close()


def test_ages_are_looked_up_only_where_they_delete(
    files: SimFiles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the oldest segment on, up to the first that is kept."""
    looked: list[int] = []
    monkeypatch.setattr(Segment, "max_timestamp", property(lambda self: looked.append(self.base_offset) or -1))
    old = segments(files, 0, 10, 20)
    config = LogConfig(retention_ms=1_000)
    date(old, replace(config, cleanup_policy=("compact",)), NOW + 5_000)
    date(old, replace(config, retention_ms=-1), NOW + 5_000)
    assert looked == []
    date(old, config, NOW + 500)
    assert looked == [0]
    looked.clear()
    date(old, config, NOW + 5_000)
    assert looked == [0, 10, 20]
