"""Apache Kafka's own tool reads our files and finds nothing wrong."""

import os
import subprocess

import pytest
from tools.jars import kafka_libs, need

from busway_bus.log.log_config import LogConfig
from busway_bus.log.os_files import OsFiles
from busway_bus.log.partition_log import PartitionLog
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000


@pytest.mark.java
@pytest.mark.slow
def test_kafka_reads_our_segments_indexes_and_snapshots(tmp_path):
    """DumpLogSegments 4.3.1 with deep iteration and index checks is content with every codec, roll and restart."""
    files = OsFiles(str(tmp_path))
    files.make_directory("t-0")
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=512)
    log = PartitionLog(files, "t-0", config, now_ms=NOW)
    records = 0
    for at in range(200):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[at % 5]
        builder = BatchBuilder(codec, producer_id=9, producer_epoch=0, base_sequence=records)
        for number in range(5):
            builder.append(NOW + records, b"key %d" % records, os.urandom(150), [("number", b"%d" % number)])
            records += 1
        log.append(builder.build(), leader_epoch=at // 50, now_ms=NOW)
        if at == 150:
            log = PartitionLog(files, "t-0", config, now_ms=NOW)
    log.close(clean=True)
    files.close()
    names = sorted(
        path for path in (tmp_path / "t-0").iterdir() if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}
    )
    assert len(names) > 12
    classes = f"{kafka_libs()}/*"
    main = [need("java", "openjdk-17-jdk-headless"), "-cp", classes, "org.apache.kafka.tools.DumpLogSegments"]
    listed = ",".join(str(path) for path in names)
    deep = subprocess.run(
        [*main, "--deep-iteration", "--files", listed], check=False, capture_output=True, text=True, timeout=100
    )
    sane = subprocess.run(
        [*main, "--index-sanity-check", "--files", listed], check=False, capture_output=True, text=True, timeout=100
    )
    output = deep.stdout + sane.stdout
    assert deep.returncode == 0, deep.stderr[-2000:]
    assert sane.returncode == 0, sane.stderr[-2000:]
    assert deep.stdout.count("| offset: ") == records
    assert "isvalid: false" not in output
    for complaint in (
        "mismatch",
        "Mismatches",
        "Non-consecutive",
        "not valid",
        "CorruptIndex",
        "CorruptSnapshot",
        "Corrupt",
        "out of order",
    ):
        assert complaint not in output, output[-3000:]
