"""Measure how much slower this machine is now than when it is idle.

Here: the factor for the time-outs of tests (`BUSWAY_PATIENCE`).
Not here: applying it (`tests/support/patience`).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

LEAST: Final = 3.0
"""The factor on an idle machine: the load may come later."""
MOST: Final = 12.0
SPIN_S: Final = 1.0
SYNCS: Final = 20
SYNC_IDLE_S: Final = 0.002
"""The time of one fsync of 4 KiB on an idle machine with a slow disk."""
_SPIN: Final = f"import time\nbegan = time.monotonic()\nwhile time.monotonic() - began < {SPIN_S}: pass\nprint(time.process_time())"


def cpu_slowdown() -> float:
    """One busy process for each core: wall time by CPU time, of the slowest. 1.0 is idle."""
    command = [sys.executable, "-I", "-S", "-c", _SPIN]
    spinning = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    return max(SPIN_S / max(float(process.communicate()[0]), 0.01) for process in spinning)


def disk_slowdown(folder: Path) -> float:
    """The median time of a small fsync in a folder, by the time on an idle machine. At least 1.0."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.monotonic()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.monotonic() - began)
    return max(statistics.median(took) / SYNC_IDLE_S, 1.0)


def measured_patience(folder: Path) -> float:
    """The factor for time-outs: twice the worst slowdown, between `LEAST` and `MOST`; prints what was measured."""
    cpu, disk = cpu_slowdown(), disk_slowdown(folder)
    factor = round(min(max(2 * cpu, 2 * disk, LEAST), MOST), 1)
    print(f"CPU {cpu:.1f} and fsync {disk:.1f} times as slow as idle: time-outs of tests are {factor} times as long")
    return factor
