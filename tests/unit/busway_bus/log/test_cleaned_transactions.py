"""Compaction of logs with transactions in them (KIP-98, KIP-534)."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.busway_bus.log.transactional import NOW, committed, end, flush, stable_end, write

from busway_bus.log.cleaner import Cleaner, cleanable
from busway_bus.log.compaction import horizon, plan
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog
from busway_bus.testing.sim_files import PowerCut, SimFiles
from busway_protocol.records.batch import BatchHeader
from busway_protocol.records.builder import BatchBuilder

DAY = 86_400_000
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=400, index_interval_bytes=100)


def fresh() -> tuple[SimFiles, PartitionLog]:
    """An empty compacted log on its own disk."""
    files = SimFiles()
    files.make_directory("t-0")
    return files, PartitionLog(files, "t-0", CONFIG, now_ms=NOW)


def plain(log: PartitionLog, key: bytes, value: bytes | None) -> None:
    """One record outside of any transaction."""
    builder = BatchBuilder()
    builder.append(NOW, key, value)
    log.append(builder.build(), leader_epoch=0, now_ms=NOW)


def clean(log: PartitionLog, *, cleaned: int = 0, now_ms: int = NOW) -> int:
    """Clean whatever can be cleaned; answers the new end of the clean part."""
    chosen = plan(log.stable_segments(), cleaned=cleaned, config=log.config, now_ms=now_ms)
    if chosen is None:
        return cleaned
    cleaner = Cleaner(log, chosen, now_ms=now_ms)
    for _ in cleaner.map_keys():
        pass
    for group in cleaner.groups():
        for _ in cleaner.write(group):
            pass
        if cleaner.prepare():
            assert cleaner.put_in_place(group, now_ms)
            cleaner.settle(now_ms)
    return cleaner.end


def clean_all(log: PartitionLog, *, now_ms: int = NOW) -> int:
    """Close the segment that is written to, and clean all of the log."""
    log.roll(now_ms)
    flush(log)
    return clean(log, now_ms=now_ms)


def headers(log: PartitionLog) -> list[BatchHeader]:
    """Of every batch that is left in closed segments."""
    return [header for segment in log.closed_segments() for header, _ in segment.headers()]


def pairs(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of committed records."""
    return [(record.key, record.value) for record in committed(log)]


def test_what_was_rolled_back_goes_and_supersedes_nothing():
    """The value before an aborted one is the last one."""
    _, log = fresh()
    plain(log, b"a", b"1")
    write(log, 1, (b"a", b"2"), (b"b", b"3"))
    end(log, 1, committed=False)
    write(log, 2, (b"c", b"4"))
    end(log, 2, committed=True)
    plain(log, b"d", b"5")
    clean_all(log)
    assert pairs(log) == [(b"a", b"1"), (b"c", b"4"), (b"d", b"5")]
    assert [header.records_count for header in headers(log) if header.producer_id == 1] == [0, 1], (
        "its sequence and its end"
    )


def test_what_was_committed_supersedes():
    """As any other record does."""
    _, log = fresh()
    plain(log, b"a", b"1")
    write(log, 1, (b"a", b"2"))
    end(log, 1, committed=True)
    clean_all(log)
    assert pairs(log) == [(b"a", b"2")]


def test_nothing_behind_the_last_stable_offset_is_cleaned():
    """It is unknown yet what becomes of an open transaction."""
    _, log = fresh()
    plain(log, b"a", b"1")
    plain(log, b"a", b"2")
    log.roll(NOW)
    write(log, 1, (b"a", b"3"))
    log.roll(NOW)
    plain(log, b"a", b"4")
    assert clean_all(log) == 2
    assert cleanable(log, cleaned=2, now_ms=NOW) is None
    end(log, 1, committed=False)
    assert clean_all(log) == log.end_offset
    assert pairs(log) == [(b"a", b"4")]


@pytest.mark.parametrize("ends_committed", [True, False])
def test_a_marker_outlives_its_records_by_the_delete_horizon(ends_committed):
    """A reader who is in the middle of the transaction meets its end; then it goes, and its entry in the index with it."""
    _, log = fresh()
    write(log, 1, (b"a", b"1"))
    end(log, 1, committed=ends_committed)
    write(log, 1, (b"a", b"2"), sequence=1)
    end(log, 1, committed=True)
    plain(log, b"a", b"3")

    def markers() -> list[tuple[int, int | None]]:
        return [(header.base_offset, horizon(header)) for header in headers(log) if header.is_control]

    clean_all(log)
    assert markers() == [(1, None), (3, None)], "their records were there when the cleaning came"
    plain(log, b"b", b"")
    clean_all(log, now_ms=NOW + 1)
    begins = NOW + 1 + log.config.delete_retention_ms
    assert markers() == [(1, begins), (3, None)], "the last batch of a producer is there, without its record"
    plain(log, b"c", b"")
    clean_all(log, now_ms=begins - 1)
    assert markers() == [(1, begins), (3, None)]
    plain(log, b"d", b"")
    clean_all(log, now_ms=begins)
    assert markers() == [(3, None)]
    assert not any(segment.transactions.count for segment in log.closed_segments())
    assert [record.value for record in committed(log)] == [b"3", b"", b"", b""]


def test_the_last_marker_of_a_producer_without_records_keeps_its_epoch():
    """With transaction version 2 an end has an epoch of its own, which fences what comes late."""
    files, log = fresh()
    write(log, 1, (b"a", b"1"))
    end(log, 1, committed=True, epoch=1, version=2)
    plain(log, b"a", b"2")
    for now_ms in (NOW, NOW + 1, NOW + DAY * 2):
        plain(log, b"b", b"")
        clean_all(log, now_ms=now_ms)
    assert [(header.base_offset, header.records_count) for header in headers(log) if header.is_control] == [(1, 0)]
    again = PartitionLog(files, "t-0", CONFIG, now_ms=NOW, flushed=log.flushed_offset, cleaned=log.end_offset)
    assert {producer: entry.epoch for producer, entry in again.producers} == {1: 1}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.sampled_from([b"a", b"b", b"c"])),
        st.tuples(st.just("write"), st.integers(0, 2), st.sampled_from([b"a", b"b", b"c"])),
        st.tuples(st.just("plain"), st.integers(0, 2), st.sampled_from([b"a", b"b", b"c"])),
        st.tuples(st.just("commit"), st.integers(0, 2), st.just(b"")),
        st.tuples(st.just("abort"), st.integers(0, 2), st.just(b"")),
        st.tuples(st.just("clean"), st.integers(0, 40), st.just(b"")),
        st.tuples(st.just("age"), st.just(0), st.just(b"")),
        st.tuples(st.just("crash"), st.integers(0, 60), st.just(b"")),
        st.tuples(st.just("restart"), st.integers(0, 1), st.just(b"")),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=250)
def test_the_last_committed_value_of_each_key_survives(steps):
    """Through cleanings that are cut off at any step on the disk, and starts after them."""
    files, log = fresh()
    now, cleaned = NOW, 0
    sequences: dict[int, int] = {}
    pending: dict[int, list[tuple[int, bytes, bytes]]] = {}
    last: dict[bytes, tuple[int, bytes]] = {}
    for number, (action, producer, key) in enumerate(steps, 1):
        if action == "write":
            info = write(log, producer, (key, b"%d" % number), sequence=sequences.get(producer, 0), now_ms=now)
            sequences[producer] = sequences.get(producer, 0) + 1
            pending.setdefault(producer, []).append((info.first_offset, key, b"%d" % number))
        elif action == "plain":
            last[key] = max(last.get(key, (-1, b"")), (log.end_offset, b"%d" % number))
            plain(log, key, b"%d" % number)
        elif action in {"commit", "abort"}:
            end(log, producer, committed=action == "commit", now_ms=now)
            for offset, written, value in pending.pop(producer, []) if action == "commit" else ():
                last[written] = max(last.get(written, (-1, b"")), (offset, value))
            if action == "abort":
                pending.pop(producer, None)
        elif action == "age":
            now += DAY * 2
        elif action == "clean":
            log.roll(now)
            flush(log)
            cleaned = clean(log, cleaned=cleaned, now_ms=now)
            log.remove_deleted(now + DAY)
        else:
            flush(log)
            clean_stop, flushed = action == "restart" and producer == 0, log.flushed_offset
            if clean_stop:
                log.close(clean=True)
            elif action == "crash":
                log.roll(now)
                flush(log)
                flushed, files.steps_left = log.flushed_offset, producer
                with contextlib.suppress(PowerCut):
                    clean(log, cleaned=cleaned, now_ms=now)
                files.steps_left = None
                files.cut_power(lambda limit, producer=producer: producer % limit)
            log = PartitionLog(files, "t-0", CONFIG, now_ms=now, flushed=flushed, cleaned=flushed, clean=clean_stop)
            assert log.end_offset == flushed
            assert {open_one for open_one in range(3) if log.producers.is_open(open_one, 0)} == set(pending)
    for producer in tuple(pending):
        end(log, producer, committed=False)
    assert stable_end(log) == log.end_offset
    newest = {record.key: (record.offset, record.value) for record in committed(log)}
    assert newest == last
