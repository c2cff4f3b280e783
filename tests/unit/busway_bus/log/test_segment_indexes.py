"""The two indexes of a segment: where entries are added, which candidates a look-up gets, what a cut leaves."""

import pytest

from busway_bus.log.file_slice import ColdPages
from busway_bus.log.index import OFFSETS_MAX
from busway_bus.log.segment_indexes import SegmentIndexes, check_offsets
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.records.batch import CorruptBatch, read_header
from busway_protocol.records.builder import BatchBuilder

BASE = 1_000


def opened(files: SimFiles) -> SegmentIndexes:
    """The indexes of the files."""
    files.make_directory("t-0")
    return SegmentIndexes(BASE, files.open("t-0/index"), files.open("t-0/timeindex"))


def filled(count: int = 10) -> tuple[SimFiles, SegmentIndexes]:
    """Batches of 100 bytes and one record each, each but the first with an entry; timestamps rise by 10."""
    files = SimFiles()
    indexes = opened(files)
    for number in range(count):
        offset = BASE + number
        indexes.note(offset, 100 * number, 100, interval=99, newest=10 * number, holder=offset)
    return files, indexes


def test_an_entry_is_due_when_more_than_the_interval_was_written() -> None:
    """It counts from the batch of the last entry; the first batch needs none."""
    indexes = opened(SimFiles())
    for number in range(7):
        indexes.note(BASE + number, 100 * number, 100, interval=200, newest=number, holder=BASE + number)
    assert indexes.offset_entries == 2
    assert list(indexes.before(BASE + 9, wait=True)) == [(BASE + 6, 600), (BASE + 3, 300)]
    assert (indexes.time_entries, indexes.last_time()) == (2, (6, BASE + 6))


def test_times_only_rise() -> None:
    """A batch whose timestamps are no later adds nothing to the time index."""
    indexes = opened(SimFiles())
    indexes.note_time(50, BASE)
    indexes.note_time(50, BASE + 1)
    indexes.note_time(49, BASE + 2)
    assert (indexes.time_entries, indexes.last_time()) == (1, (50, BASE))
    indexes.note_time(51, BASE + 3)
    assert indexes.last_time() == (51, BASE + 3)


def test_candidates_begin_with_the_nearest_entry() -> None:
    """Then back in doubling steps; no batch of theirs ends behind the offset."""
    _, indexes = filled()
    assert list(indexes.before(BASE + 9, wait=True)) == [(BASE + at, 100 * at) for at in (9, 8, 6, 2)]
    assert next(indexes.before(BASE + 5, wait=True)) == (BASE + 5, 500)
    assert list(indexes.before(BASE, wait=True)) == []


def test_candidates_of_a_time_are_earlier_than_it() -> None:
    """An entry with that very time is none."""
    _, indexes = filled()
    assert next(indexes.earlier(51)) == (50, BASE + 5)
    assert next(indexes.earlier(50)) == (40, BASE + 4)
    assert list(indexes.earlier(10)) == []


def test_a_damaged_time_is_no_candidate() -> None:
    """An entry that is out of order would hide the records before its batch."""
    files = SimFiles()
    for timestamp in (90, 10, 20, 30):
        opened(files).note_time(timestamp, BASE)
    assert list(opened(files).earlier(50)) == [(30, BASE), (20, BASE)]


@pytest.mark.parametrize(("position", "number"), [(0, 1), (100, 1), (101, 2), (900, 9)])
def test_the_first_entry_at_or_behind_a_position(position: int, number: int) -> None:
    """The batch at the position counts."""
    _, indexes = filled()
    assert indexes.at_or_behind(position, wait=True) == (BASE + number, 100 * number)
    assert indexes.at_or_behind(901, wait=True) is None


@pytest.mark.parametrize(("offset", "last"), [(BASE + 6, BASE + 5), (BASE + 5, BASE + 4), (BASE + 99, BASE + 9)])
def test_cut_removes_batches_that_end_at_or_behind_the_offset(offset: int, last: int) -> None:
    """From both indexes; times go on from what is left."""
    files, indexes = filled()
    indexes.cut(offset)
    entry, time = indexes.last_batch(), indexes.last_time()
    assert entry == (last, 100 * (last - BASE))
    assert time == (10 * (last - BASE), last)
    assert indexes.offset_bytes == files.sizes("t-0")["index"]
    indexes.note_time(10 * (last - BASE), last + 1)
    assert indexes.last_time() == time


def test_all_can_be_removed() -> None:
    """The empty indexes have no candidates."""
    files, indexes = filled()
    indexes.clear()
    assert (indexes.offset_entries, indexes.time_entries) == (0, 0)
    assert (indexes.last_batch(), indexes.last_time()) == (None, None)
    assert dict(files.sizes("t-0")) == {"index": 0, "timeindex": 0}


def test_a_failed_note_is_undone() -> None:
    """What was written of it in either file is cut off."""
    files, indexes = filled(5)
    sizes = dict(files.sizes("t-0"))
    files.open("t-0/index").append([b"x" * 8])
    files.open("t-0/timeindex").append([b"x"])
    broken = opened(files)
    assert not broken.whole
    indexes.undo()
    assert dict(files.sizes("t-0")) == sizes
    assert opened(files).whole


def test_the_interval_goes_on_after_a_restart() -> None:
    """By the bytes since the last entry that the caller counted."""
    files, _ = filled(2)
    indexes = opened(files)
    indexes.restart(60)
    indexes.note(BASE + 2, 160, 40, interval=60, newest=99, holder=BASE + 2)
    assert indexes.offset_entries == 1
    indexes.note(BASE + 3, 200, 40, interval=60, newest=99, holder=BASE + 2)
    assert indexes.last_batch() == (BASE + 3, 200)
    assert indexes.last_time() == (99, BASE + 2)


def test_without_waiting_cold_pages_are_reported() -> None:
    """For the offset index, which fetches use."""
    files, _ = filled()
    files.cold.add("t-0/index")
    indexes = opened(files)
    with pytest.raises(ColdPages):
        next(indexes.before(BASE + 9, wait=False))
    with pytest.raises(ColdPages):
        indexes.last_batch(wait=False)


def test_offsets_of_a_batch_follow_the_last_one() -> None:
    """A gap is none of its business; offsets that the index cannot hold are."""
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"v")
    for base in (BASE, BASE + 7, BASE + OFFSETS_MAX - 2):
        check_offsets(read_header(builder.build(base)), BASE, BASE)
    for base in (BASE - 1, BASE + OFFSETS_MAX - 1):
        with pytest.raises(
            CorruptBatch, match=f"behind offset {BASE - 1} says that it has offsets {base} to {base + 2}"
        ):
            check_offsets(read_header(builder.build(base)), BASE, BASE)
