"""Iteration over the batches of a file: positions, gaps between offsets, and sizes that cannot be."""

import pytest

from busway_bus.log.batch_file import BatchFile
from busway_bus.log.file_slice import ColdPages
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.records.batch import CorruptBatch
from busway_protocol.records.builder import BatchBuilder

PATH = "t-0/a.log"


def batch(base_offset: int, *, records: int = 1, size: int = 10) -> bytes:
    """A batch of records with values of that size."""
    builder = BatchBuilder()
    for number in range(records):
        builder.append(number, b"k", b"v" * size)
    return builder.build(base_offset)


def filled(*pieces: bytes) -> tuple[SimFiles, BatchFile]:
    """A file of these bytes."""
    files = SimFiles()
    files.make_directory("t-0")
    file = files.open(PATH)
    file.append(list(pieces))
    return files, BatchFile(file, PATH)


BATCHES = (batch(0, records=3), batch(3), batch(10, records=2, size=2 * 1024 * 1024), batch(12))
STARTS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]


def test_headers_come_with_their_positions() -> None:
    """From any batch on, also behind one that is larger than a read."""
    _, batches = filled(*BATCHES)
    offsets = [0, 3, 10, 12]
    for number in range(len(BATCHES) + 1):
        headers = [(header.base_offset, position) for header, position in batches.headers(STARTS[number])]
        assert headers == list(zip(offsets[number:], STARTS[number:-1], strict=True))


def test_batches_come_whole() -> None:
    """Their bytes are those that were written, whatever their size."""
    _, batches = filled(*BATCHES)
    assert [bytes(whole) for _, whole, _ in batches.batches(0)] == list(BATCHES)
    assert [position for _, _, position in batches.batches(STARTS[2])] == STARTS[2:-1]


@pytest.mark.parametrize(
    ("offset", "number"), [(0, 0), (2, 0), (3, 1), (4, 2), (9, 2), (11, 2), (12, 3), (13, 4), (99, 4)]
)
def test_an_offset_is_in_the_first_batch_that_ends_at_it_or_behind(offset: int, number: int) -> None:
    """An offset in a gap is answered with the batch behind it, one behind all with the end."""
    _, batches = filled(*BATCHES)
    assert batches.find(offset, 0, after=None, wait=True) == STARTS[number]


def test_a_search_from_an_index_entry_checks_it() -> None:
    """The batch at the start has to end where the index says; bytes that are no batch are a wrong entry, too."""
    _, batches = filled(*BATCHES)
    assert batches.find(12, STARTS[1], after=3, wait=True) == STARTS[3]
    assert batches.find(12, STARTS[1], after=4, wait=True) is None
    assert batches.find(12, STARTS[1] + 1, after=3, wait=True) is None
    with pytest.raises(CorruptBatch):
        batches.find(12, STARTS[1] + 1, after=None, wait=True)


def test_a_batch_that_reaches_beyond_the_file_is_damage() -> None:
    """For each kind of read, with the file's name; what is less than a header ends the iteration."""
    _, batches = filled(BATCHES[0], BATCHES[1][:-1])
    at = len(BATCHES[0])
    text = f"the batch at byte {at} of {PATH} says it has {len(BATCHES[1])} bytes"
    with pytest.raises(CorruptBatch, match=text):
        list(batches.headers())
    with pytest.raises(CorruptBatch, match=text):
        batches.find(3, 0, after=None, wait=True)
    with pytest.raises(CorruptBatch, match=text):
        batches.size_of(at, wait=True)
    assert batches.size_of(0, wait=True) == at
    _, batches = filled(BATCHES[0], BATCHES[1][:60])
    assert [header.base_offset for header, _ in batches.headers()] == [0]
    assert batches.find(3, 0, after=None, wait=True) == at + 60


def test_a_size_below_that_of_a_header_is_damage() -> None:
    """Otherwise an iteration would not end."""
    short = bytearray(BATCHES[1])
    short[8:12] = (48).to_bytes(4, "big")
    _, batches = filled(BATCHES[0], bytes(short))
    with pytest.raises(CorruptBatch):
        list(batches.headers())


def test_one_header() -> None:
    """At the end there is none."""
    _, batches = filled(*BATCHES)
    header = batches.header(STARTS[2])
    assert header is not None
    assert (header.base_offset, header.size_bytes) == (10, len(BATCHES[2]))
    assert batches.header(STARTS[4]) is None
    assert batches.header(STARTS[4] - 1) is None


def test_without_waiting_cold_pages_are_reported() -> None:
    """Each look-up then raises what the caller warms."""
    files, batches = filled(*BATCHES)
    files.cold.add(PATH)
    with pytest.raises(ColdPages):
        list(batches.headers(wait=False))
    with pytest.raises(ColdPages):
        batches.find(0, 0, after=None, wait=False)
    with pytest.raises(ColdPages):
        batches.size_of(0, wait=False)
    assert len(list(batches.headers())) == len(BATCHES)
