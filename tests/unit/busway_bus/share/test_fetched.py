"""The batches that one member of a share group is given, found by their headers."""

import pytest
from tests.unit.busway_bus.log.transactional import NOW, end, write

from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.share.fetched import Fetched, read, rolled_back
from busway_bus.share.in_flight import Acquired
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import BatchHeader, iter_batches, read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

PAIR = (b"k", b"v")


@pytest.fixture
def log() -> PartitionLog:
    """Four batches of two records: producer 1 aborts the first, 2 commits the second, 3 and 4 have no transaction."""
    files = SimFiles()
    files.make_directory("t-0")
    made = PartitionLog(files, "t-0", LogConfig(retention_ms=-1), now_ms=NOW)
    write(made, 1, PAIR, PAIR)
    write(made, 2, PAIR, PAIR)
    end(made, 1, committed=False)
    end(made, 2, committed=True)
    for _ in range(2):
        builder = BatchBuilder()
        builder.append(NOW, *PAIR)
        builder.append(NOW, *PAIR)
        made.append(builder.build(), leader_epoch=0, now_ms=NOW)
    return made


def fetch(log: PartitionLog, offset: int = 0, **changes: object) -> Fetched | None:
    """Read everything, but for the changes."""
    values = {"wanted_up_to": 99, "max_bytes": 10_000, "up_to": log.end_offset, "committed": False, "min_one": True}
    return read(log, offset, wait=True, **{**values, **changes})  # type: ignore[arg-type]


def spans(fetched: Fetched | None) -> list[tuple[int, int]]:
    """Return the offsets of the batches."""
    return [] if fetched is None else list(fetched.spans)


def test_whole_batches_from_the_one_with_the_offset(log: PartitionLog) -> None:
    """Markers are batches, too."""
    assert spans(fetch(log)) == [(0, 1), (2, 3), (4, 4), (5, 5), (6, 7), (8, 9)]
    assert spans(fetch(log, 3)) == [(2, 3), (4, 4), (5, 5), (6, 7), (8, 9)]
    assert spans(fetch(log, up_to=6)) == [(0, 1), (2, 3), (4, 4), (5, 5)]
    assert fetch(log, log.end_offset) is None


def test_reading_ends_with_the_wanted_record_or_the_bytes(log: PartitionLog) -> None:
    """The first batch may be larger than allowed, if one is needed."""
    size = len(next(iter(log.batches(0))))
    assert spans(fetch(log, wanted_up_to=2)) == [(0, 1), (2, 3)]
    assert spans(fetch(log, max_bytes=2 * size - 1)) == [(0, 1)]
    assert spans(fetch(log, max_bytes=1)) == [(0, 1)]
    assert fetch(log, max_bytes=1, min_one=False) is None


def test_an_offset_that_is_not_in_the_log(log: PartitionLog) -> None:
    """The group must look for another start."""
    with pytest.raises(KafkaError) as refused:
        fetch(log, log.end_offset + 1)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_aborted_batches_are_found_when_asked_for(log: PartitionLog) -> None:
    """Only with `committed`."""
    fetched, plain = fetch(log, committed=True), fetch(log)
    assert fetched is not None
    assert plain is not None
    assert (list(fetched.aborted), list(plain.aborted)) == ([(0, 1)], [])
    assert spans(fetched) == spans(plain)


def test_the_bytes_between_acquired_records_are_whole_batches(log: PartitionLog) -> None:
    """From the batch of the first record to that of the last."""
    fetched = fetch(log)
    assert fetched is not None
    piece = fetched.of([Acquired(3, 3, 1), Acquired(6, 6, 1)])
    batches = list(iter_batches(piece.take(len(piece))))
    assert [first.base_offset for first, _ in batches] == [2, 4, 5, 6]
    assert [record.offset for record in decode_records(batches[0][1])] == [2, 3]


def header(base_offset: int, producer_id: int, *, marker: bool = False, transactional: bool = True) -> BatchHeader:
    """A batch of two records, or a marker."""
    plain = BatchBuilder()
    plain.append(NOW, *PAIR)
    return read_header(plain.build(base_offset=base_offset))._replace(
        producer_id=producer_id,
        attributes=(0x10 if transactional else 0) | (0x20 if marker else 0),
        last_offset_delta=0 if marker else 1,
    )


def test_batches_of_aborted_transactions() -> None:
    """A transaction goes from its first offset to the producer's next marker; others between are not in it."""
    headers = [
        header(0, 1),
        header(2, 2),
        header(4, -1, transactional=False),
        header(6, 1),
        header(8, 1, marker=True),
        header(9, 1),
        header(11, 1, transactional=False),
    ]
    assert rolled_back(headers, [(1, 0)]) == [(0, 1), (6, 7)]
    assert rolled_back(headers, [(2, 2), (1, 9)]) == [(2, 3), (9, 10)]
    assert rolled_back(headers, []) == []
