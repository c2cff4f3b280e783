"""Apache Kafka's own tool reads our files and finds nothing wrong."""

import random
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.patience import patient
from tools.jars import kafka_libs, need

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.cleaner import Cleaner
from busway_bus.log.compaction import plan
from busway_bus.log.log_config import LogConfig
from busway_bus.log.os_files import OsFiles
from busway_bus.log.partition_log import PartitionLog
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000
FILES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
pytestmark = [pytest.mark.java, pytest.mark.slow]


def dump(directory: Path) -> str:
    """What DumpLogSegments 4.3.1 says of every file, record by record; its index checks find nothing."""
    names = sorted(path for path in directory.iterdir() if path.suffix in FILES)
    main = [
        need("java", "openjdk-17-jdk-headless"), "-cp", f"{kafka_libs()}/*", "org.apache.kafka.tools.DumpLogSegments"
    ]  # fmt: skip
    listed = ",".join(str(path) for path in names)
    output = ""
    for option in ("--deep-iteration", "--index-sanity-check"):
        answer = subprocess.run(
            [*main, option, "--files", listed], check=False, capture_output=True, text=True, timeout=patient(100)
        )
        assert answer.returncode == 0, answer.stderr[-2000:]
        output += answer.stdout
    assert "isvalid: false" not in output
    for complaint in ("mismatch", "Mismatches", "Non-consecutive", "not valid", "Corrupt", "out of order"):
        assert complaint not in output, output[-3000:]
    return output


def flush(log: PartitionLog) -> None:
    """Put everything on disk."""
    point = log.flush_point()
    point.sync()
    log.flushed(point)


def test_kafka_reads_our_segments_indexes_and_snapshots(tmp_path):
    """DumpLogSegments with deep iteration and index checks is content with every codec, roll and restart."""
    files = OsFiles(str(tmp_path))
    files.make_directory("t-0")
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=512)
    log = PartitionLog(files, "t-0", config, now_ms=NOW)
    dice, records = random.Random(1), 0
    for at in range(200):
        builder = BatchBuilder(CODECS[at % 5], producer_id=9, producer_epoch=0, base_sequence=records)
        for number in range(5):
            builder.append(NOW + records, b"key %d" % records, dice.randbytes(150), [("number", b"%d" % number)])
            records += 1
        log.append(builder.build(), leader_epoch=at // 50, now_ms=NOW)
        if at == 150:
            flush(log)
            log = PartitionLog(files, "t-0", config, now_ms=NOW)
    log.close(clean=True)
    files.close()
    assert len(list((tmp_path / "t-0").iterdir())) > 12
    assert dump(tmp_path / "t-0").count("| offset: ") == records


def test_kafka_reads_what_compaction_leaves(tmp_path):
    """Batches with gaps, delete horizons and none left are as Kafka's own cleaner would write them, offsets unchanged."""
    files = OsFiles(str(tmp_path))
    files.make_directory("t-0")
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=40_000, index_interval_bytes=512)
    log = PartitionLog(files, "t-0", config, now_ms=NOW)
    last: dict[bytes, int] = {}
    cleaned = sequence = 0
    dice = random.Random(1)
    for cycle in range(3):
        for at in range(100):
            builder = BatchBuilder(
                CODECS[at % 5], producer_id=at % 10, producer_epoch=0, base_sequence=cycle * 50 + at // 10 * 5
            )
            for number in range(5):
                key = b"key %d" % (sequence * 7 % 83)
                value = None if number == 3 and at % 7 == 0 else dice.randbytes(150)
                builder.append(NOW + sequence, key, value, [("number", b"%d" % number)])
                last[key] = sequence
                sequence += 1
            log.append(builder.build(), leader_epoch=cycle, now_ms=NOW)
        log.roll(NOW)
        flush(log)
        cleaner = Cleaner(
            log, plan(log.closed_segments(), cleaned=cleaned, config=config, now_ms=NOW), now_ms=NOW + cycle
        )
        list(cleaner.map_keys())
        for group in cleaner.groups():
            list(cleaner.write(group))
            if cleaner.prepare():
                assert cleaner.put_in_place(group, NOW)
                cleaner.settle(NOW)
        cleaned = cleaner.end
    log.close(clean=True)
    files.close()
    output = dump(tmp_path / "t-0")
    assert cleaned == sequence == 1500
    assert sorted({int(offset) for offset in re.findall(r"\| offset: (\d+)", output)}) == sorted(last.values())
    assert re.search(r"count: 0 ", output)
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", output)


def test_kafka_reads_our_transactions(tmp_path):
    """Markers, the indexes of aborted transactions and the open ones in a snapshot say what was written, over several segments."""
    files = OsFiles(str(tmp_path))
    files.make_directory("t-0")
    log = PartitionLog(files, "t-0", LogConfig(segment_bytes=2_000, index_interval_bytes=512), now_ms=NOW)
    aborted: list[tuple[int, int, int]] = []
    dice = random.Random(1)
    for at in range(30):
        producer, committed = at % 3, at % 4 != 1
        builder = BatchBuilder(producer_id=producer, producer_epoch=at, base_sequence=0, transactional=True)
        builder.append(NOW, b"k", dice.randbytes(150))
        first = log.append_own(builder.build(), leader_epoch=0, now_ms=NOW).first_offset
        marker = EndTransaction(
            producer_id=producer,
            producer_epoch=at + 1,
            committed=committed,
            coordinator_epoch=at // 10,
            transaction_version=2,
        )
        ended = log.append_marker(marker, leader_epoch=0, now_ms=NOW)
        if not committed:
            aborted.append((producer, first, ended.last_offset))
    builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(NOW, b"k", b"open")
    log.append_own(builder.build(), leader_epoch=0, now_ms=NOW)
    log.close(clean=True)
    files.close()
    output = dump(tmp_path / "t-0")
    entry = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    aborted_transactions = sorted(
        {tuple(map(int, match)) for match in re.findall(entry, output)}, key=lambda entry: entry[1]
    )
    assert aborted_transactions == [(producer, first, last, last + 1) for producer, first, last in aborted]
    assert output.count("endTxnMarker: COMMIT coordinatorEpoch: ") == 30 - len(aborted)
    assert output.count("endTxnMarker: ABORT coordinatorEpoch: ") == len(aborted)
    assert re.search(r"producerId: 9 .*currentTxnFirstOffset: OptionalLong.60", output)
    assert re.search(r"producerId: 2 producerEpoch: 30 coordinatorEpoch: 2", output)
