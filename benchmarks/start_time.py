"""How long a start takes, by the size of the log and by what was not flushed: `python -m benchmarks.start_time`.

Here: partitions made of files, and a process that opens them as the broker does. Closed segments are sparse files of
their full size: their indexes are whole, of their batches only the last ones are there, which is all that a start may
look at. The segment that was written to when the broker was killed is written in full; with `--written-gib` one more
log is, all of it, and is opened from disk as far as the page cache can be dropped.
Not here: the rest of a broker's start, and other brokers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks.machine import MIB, resident_mib
from busway_bus.log.checkpoints import META_PROPERTIES, RECOVERY_POINTS, offsets_text, properties_text
from busway_bus.log.directories import metadata_bytes
from busway_bus.log.log_config import LogConfig
from busway_bus.log.os_files import OsFiles
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.store import LogStore
from busway_protocol.records.batch import assign_offset
from busway_protocol.records.builder import BatchBuilder

TOPIC = UUID(int=1)
NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1024 * MIB
TAIL_BATCHES = 4


def batch() -> bytes:
    """One of a little more than index.interval.bytes, so that each has an entry in both indexes."""
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"v" * 4_100)
    return builder.build()


def closed_segment(directory: Path, number: int, size_bytes: int, *, written: bool = False) -> int:
    """Write segment `number`, the first being 0; answers how many batches, of one record each, it has.

    Args:
        written: all of them, not the last ones alone.
    """
    whole = bytearray(batch())
    count = size_bytes // len(whole)
    base = directory / f"{number * count:020d}"
    with base.with_suffix(".log").open("wb") as log:
        for at in range(0 if written else count - TAIL_BATCHES, count):
            assign_offset(whole, base_offset=number * count + at, leader_epoch=0)
            log.seek(at * len(whole))
            log.write(whole)
    entries = array("i", [field for at in range(1, count) for field in (at, at * len(whole))])
    entries.byteswap()
    base.with_suffix(".index").write_bytes(entries)
    base.with_suffix(".timeindex").write_bytes(NOW_MS.to_bytes(8) + (count - 1).to_bytes(4))
    base.with_suffix(".snapshot").write_bytes(ProducerState().snapshot())
    return count


def build(
    root: Path, partitions: int, log_bytes: int, active_bytes: int, unflushed_bytes: int, *, written: bool = False
) -> None:
    """Make a data directory: of each partition as many closed segments as fill `log_bytes`, and the last one.

    Args:
        active_bytes: of each last segment; all but `unflushed_bytes` of it were flushed.
    """
    (root / META_PROPERTIES).write_text(
        properties_text({"version": "1", "cluster.id": "c", "node.id": "1", "directory.id": "AAAAAAAAAAAAAAAAAAAAAQ"})
    )
    files = OsFiles(str(root))
    points = {}
    for partition in range(partitions):
        name = f"t-{partition}"
        directory = root / name
        directory.mkdir()
        (directory / "partition.metadata").write_bytes(metadata_bytes(TOPIC))
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        segments = log_bytes // partitions // SEGMENT_BYTES
        count = sum(closed_segment(directory, number, SEGMENT_BYTES, written=written) for number in range(segments))
        for suffix, content in ((".log", b""), (".snapshot", ProducerState().snapshot())):
            (directory / f"{count:020d}{suffix}").write_bytes(content)
        log = PartitionLog(files, name, LogConfig(retention_ms=-1), now_ms=NOW_MS, flushed=count)
        log.roll(NOW_MS)
        points["t", partition] = append(log, active_bytes - unflushed_bytes)
        append(log, unflushed_bytes, flush=False)
        log.close(clean=False)
    (root / RECOVERY_POINTS).write_text(offsets_text(points))
    files.close()


def append(log: PartitionLog, size_bytes: int, *, flush: bool = True) -> int:
    """Write so much, flushed every 16 MiB as under load; answers the offset behind it."""
    whole = batch()
    for number in range(size_bytes // len(whole)):
        log.append_own(whole, leader_epoch=0, now_ms=NOW_MS)
        if flush and number % 4_000 == 0:
            point = log.flush_point()
            point.sync()
            log.flushed(point)
    if flush:
        point = log.flush_point()
        point.sync()
        log.flushed(point)
    return log.flushed_offset


def opened(root: str) -> dict[str, float]:
    """Open all partitions of a data directory, as a start does, and say what it took; then stop in order."""
    files, before = OsFiles(root), resident_mib(os.getpid())
    read, start, cpu = read_bytes(), time.perf_counter(), time.process_time()
    store = LogStore(files, node_id=1, new_ids=uuid4)
    for directory in sorted(Path(root).glob("t-*")):
        number = int(directory.name.removeprefix("t-"))
        store.open("t", number, TOPIC, LogConfig(retention_ms=-1), NOW_MS)
    taken = {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "read_mib": (read_bytes() - read) / MIB,
        "resident_mib": resident_mib(os.getpid()) - before,
    }
    store.close()
    return taken


def read_bytes() -> int:
    """What this process has read so far, from memory or disk."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def rows(largest_gib: int, partitions: int, written_gib: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each start, in a process of its own, on a directory that is removed behind it."""
    sizes = [gib for gib in (1, 5, 20, 1024) if gib <= largest_gib]
    shapes = [(f"{gib} GiB, 1 partition", 1, gib * SEGMENT_BYTES, 256 * MIB, False) for gib in sizes]
    shapes.append((f"{partitions} partitions, 1 MiB each", partitions, 0, MIB, False))
    if written_gib:
        shapes.append((f"{written_gib} GiB written, 1 partition", 1, written_gib * SEGMENT_BYTES, 256 * MIB, True))
    for name, count, log_bytes, active_bytes, written in shapes:
        with tempfile.TemporaryDirectory(prefix="busway-start-") as root:
            build(Path(root), count, log_bytes, active_bytes, min(4 * MIB, active_bytes // 8), written=written)
            for how in ("a kill", "a clean stop"):
                cold = " from disk" if written and page_cache_dropped() else ""
                yield f"{name}, after {how}{cold}", start(root)


def page_cache_dropped() -> bool:
    """Whether nothing is in memory any more; the system lets root alone do it."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def start(root: str) -> dict[str, float]:
    """What `opened` says in a new process."""
    command = [sys.executable, "-m", "benchmarks.start_time", "--open", root]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--largest-gib", type=int, default=1024, help="leave out larger logs")
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions in the row of many partitions")
    parser.add_argument("--written-gib", type=int, default=0, help="one more log of this size that is not sparse")
    parser.add_argument("--open", help="only open this data directory")
    arguments = parser.parse_args()
    if arguments.open:
        print(json.dumps(opened(arguments.open)))
        return
    print("| start | seconds | CPU seconds | read, MiB | memory, MiB |\n|---|---|---|---|---|")
    for name, taken in rows(arguments.largest_gib, arguments.partitions, arguments.written_gib):
        cells = [f"{taken[key]:.3f}" for key in ("seconds", "cpu")]
        cells += [f"{taken[key]:.1f}" for key in ("read_mib", "resident_mib")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
