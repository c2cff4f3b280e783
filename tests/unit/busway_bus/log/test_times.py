"""Look-ups by timestamp over segments, beside a search through all records."""

from itertools import count

import pytest

from busway_bus.log.log_config import LogConfig
from busway_bus.log.segment import Segment
from busway_bus.log.times import OffsetAndTimestamp, Search, first_at, first_of_largest
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ProtocolError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder

CONFIG = LogConfig(index_interval_bytes=1)
TIMES = (((5, 9, 7), (3, 9)), ((20, 11), (20, 2, 8)), ((1,), (15, 20)))
"""Timestamps by segment and batch; the offsets begin with 0."""
EPOCH = 4


def segments_of(times: tuple[tuple[tuple[int, ...], ...], ...] = TIMES, codec: str = "none") -> list[Segment]:
    """Segments with records of these timestamps."""
    files, offset, segments = SimFiles(), 0, []
    files.make_directory("t-0")
    for batches in times:
        segment = Segment(files, "t-0", offset, 0)
        for stamps in batches:
            builder = BatchBuilder(codec)
            for stamp in stamps:
                builder.append(stamp, b"k", b"v")
            raw = builder.build(offset, leader_epoch=EPOCH)
            segment.append([raw], read_header(raw), CONFIG)
            offset += len(stamps)
        segment.finish()
        segments.append(segment)
    return segments


def finished(search: Search) -> OffsetAndTimestamp | None:
    """The result of a search, and that it has ended."""
    for _ in count():
        try:
            next(search)
        except StopIteration as end:
            result: OffsetAndTimestamp | None = end.value
            return result
    raise AssertionError


ALL = list(enumerate(stamp for segment in TIMES for batch in segment for stamp in batch))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_first_at_is_the_first_record_that_is_late_enough(codec: str) -> None:
    """For all times, and all bounds of the readable offsets."""
    segments = segments_of(codec=codec)
    for wanted in range(22):
        for start in (0, 2, 4, 6, 12):
            for end in (0, 3, 5, 6, 8, 13):
                expected = next(
                    ((offset, stamp, EPOCH) for offset, stamp in ALL if start <= offset < end and stamp >= wanted), None
                )
                search = first_at(segments, wanted, start_offset=start, up_to=end, config=CONFIG)
                assert finished(search) == expected, (wanted, start, end)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_first_of_largest_is_the_first_record_with_the_largest_time(codec: str) -> None:
    """Within all bounds of the readable offsets (KIP-734)."""
    segments = segments_of(codec=codec)
    for start in range(len(ALL) + 1):
        for end in range(len(ALL) + 1):
            readable = ALL[start:end]
            expected = max(readable, key=lambda pair: (pair[1], -pair[0]), default=None)
            result = finished(first_of_largest(segments, start_offset=start, up_to=end, config=CONFIG))
            assert result == (None if expected is None else (*expected, EPOCH)), (start, end)


def test_records_without_a_timestamp_are_none() -> None:
    """Their largest is -1, which nothing has."""
    segments = segments_of((((-1, -1),),))
    assert finished(first_of_largest(segments, start_offset=0, up_to=2, config=CONFIG)) is None


def test_a_long_search_is_done_in_steps() -> None:
    """The event loop goes on between them: a step has at most 500 headers or records."""
    (segment,) = segments_of((tuple((number,) for number in range(1_200)),))
    segment.indexes.clear()
    assert len(list(first_at([segment], 1_199, start_offset=0, up_to=1_200, config=CONFIG))) == 3
    (segment,) = segments_of(((tuple(range(1_200)),),))
    assert len(list(first_at([segment], 1_199, start_offset=0, up_to=1_200, config=CONFIG))) == 4


def test_damaged_records_are_refused() -> None:
    """They are decompressed only where the record may be in them."""
    files = SimFiles()
    files.make_directory("t-0")
    builder = BatchBuilder("gzip")
    builder.append(7, b"k", b"v")
    raw = bytearray(builder.build(0))
    raw[61:] = bytes(len(raw) - 61)
    segment = Segment(files, "t-0", 0, 0)
    segment.append([raw], read_header(raw), CONFIG)
    assert finished(first_at([segment], 8, start_offset=0, up_to=1, config=CONFIG)) is None
    with pytest.raises(ProtocolError):
        finished(first_at([segment], 7, start_offset=0, up_to=1, config=CONFIG))
