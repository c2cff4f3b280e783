"""The file of a segment's aborted transactions: absent until needed, cut and checked by its markers."""

import pytest

from busway_bus.log.aborted import ENTRY, AbortedTransaction, Overlaps
from busway_bus.log.file_slice import ColdPages
from busway_bus.log.transaction_index import TransactionIndex
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.records.batch import CorruptBatch

PATH = "t-0/0.txnindex"


def entry(marker: int, producer: int = 1) -> AbortedTransaction:
    """A transaction of the four records before its marker."""
    return AbortedTransaction(producer, marker - 4, marker, marker - 4)


def index_of(*markers: int) -> tuple[SimFiles, TransactionIndex]:
    """An index with these markers."""
    files = SimFiles()
    files.make_directory("t-0")
    index = TransactionIndex(files, PATH, None)
    for marker in markers:
        index.append(entry(marker))
    return files, index


def test_there_is_no_file_without_an_entry() -> None:
    """It is made with the first one; what is asked of the empty index is answered."""
    files, index = index_of()
    assert (index.there, index.all()) == (False, [])
    index.cut(0)
    index.check(0, 10, whole=True)
    index.sync()
    assert files.list("t-0") == []
    index.append(entry(5))
    assert files.list("t-0") == ["0.txnindex"]


def test_what_is_appended_is_read_by_the_next_process() -> None:
    """In order."""
    files, index = index_of(5, 10, 20)
    again = TransactionIndex(files, PATH, files.sizes("t-0")["0.txnindex"])
    assert again.count == 3
    assert again.all() == index.all() == [entry(5), entry(10), entry(20)]


def test_the_entry_of_a_marker_that_was_not_written_is_taken_back() -> None:
    """The next one takes its place."""
    files, index = index_of(5)
    index.append(entry(10, producer=2))
    index.take_back()
    assert index.all() == [entry(5)]
    index.append(entry(12))
    assert index.all() == [entry(5), entry(12)]
    assert files.sizes("t-0")["0.txnindex"] == 2 * ENTRY.size


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (5, 0), (6, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_cut_removes_the_markers_from_an_offset_on(offset: int, left: int) -> None:
    """The marker at the offset is removed, too."""
    files, index = index_of(5, 10, 20)
    index.cut(offset)
    assert index.all() == [entry(5), entry(10), entry(20)][:left]
    assert files.sizes("t-0")["0.txnindex"] == left * ENTRY.size


def test_bytes_behind_the_last_entry_are_cut_and_checked() -> None:
    """An earlier process may have written part of an entry."""
    files, _ = index_of(5, 10)
    files.open(PATH).append([b"half"])
    again = TransactionIndex(files, PATH, files.sizes("t-0")["0.txnindex"])
    with pytest.raises(CorruptBatch, match="ends within an entry"):
        again.check(0, 100, whole=False)
    again.append(entry(15))
    again.check(0, 100, whole=True)
    assert again.all() == [entry(5), entry(10), entry(15)]
    files.open(PATH).append([b"half"])
    again = TransactionIndex(files, PATH, files.sizes("t-0")["0.txnindex"])
    again.cut(100)
    assert files.sizes("t-0")["0.txnindex"] == 3 * ENTRY.size


@pytest.mark.parametrize(
    ("markers", "base_offset", "next_offset"),
    [((5, 10), 0, 10), ((5, 10), 6, 20), ((10, 5), 0, 20), ((5, 5), 0, 20)],
)
def test_markers_lie_in_their_segment_in_order(markers: tuple[int, ...], base_offset: int, next_offset: int) -> None:
    """Only a check of all entries sees it."""
    _, index = index_of(*markers)
    index.check(base_offset, next_offset, whole=False)
    with pytest.raises(CorruptBatch, match=f"{PATH} has the marker"):
        index.check(base_offset, next_offset, whole=True)


def test_the_check_goes_over_all_pages() -> None:
    """Also the order between two pages."""
    markers = [5 * number for number in range(1, 302)]
    _, index = index_of(*markers)
    index.check(5, markers[-1] + 1, whole=True)
    with pytest.raises(CorruptBatch):
        index.check(5, markers[-1], whole=True)
    _, index = index_of(*markers[:120], 7)
    with pytest.raises(CorruptBatch, match="the marker at 7 behind that at 600"):
        index.check(5, 9999, whole=True)


def test_a_damaged_entry_is_named_with_its_file() -> None:
    """By the path that the file has now."""
    files, index = index_of(5)
    file = files.open(PATH)
    file.truncate(0)
    file.append([b"\x00\x09" + entry(5).packed()[2:]])
    index.renamed("t-0/0.txnindex.deleted")
    with pytest.raises(CorruptBatch, match=r"t-0/0.txnindex.deleted is damaged: .* version 9"):
        index.all()


def test_a_reader_collects_the_transactions_that_overlap() -> None:
    """Without waiting only what is in memory."""
    files, index = index_of(5, 10, 20)
    overlaps = Overlaps(8, 12)
    index.collect(overlaps, wait=True)
    assert overlaps.transactions == [(1, 6)]
    files.cold.add(PATH)
    with pytest.raises(ColdPages):
        index.collect(Overlaps(8, 12), wait=False)


def test_clear_keeps_the_file() -> None:
    """It is empty."""
    files, index = index_of(5, 10)
    index.clear()
    assert (index.there, index.count, index.all()) == (True, 0, [])
    assert files.sizes("t-0")["0.txnindex"] == 0
