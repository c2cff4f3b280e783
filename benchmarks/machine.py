"""What the operating system says of a process and of the machine.

Here: `/proc`.
Not here: any judgement of the figures.
"""

import mmap
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from tools.jars import need

_TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024
_TOUCHED_BYTES = 2048 * MIB


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024 / MIB


def load_average() -> str:
    """How many processes wanted a core in the last minute, the last five and the last fifteen, on average."""
    return ", ".join(f"{load:.2f}" for load in os.getloadavg())


def touch_memory() -> None:
    """Use 2 GiB of free memory once, which the kernel then hands out first.

    A virtual machine gets a page from its host when it is first written, at ten times the cost of writing it, and may give it back
    when it is free for a while; which broker pays for that would be chance.
    """
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    size = min(_TOUCHED_BYTES, free // 4)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def describe() -> dict[str, str]:
    """The machine and the versions, as a table of texts."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(
        [need("java", "openjdk-17-jdk-headless"), "-version"], capture_output=True, text=True, check=True
    )
    return {
        "load average": load_average(),
        "processor": f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}",
        "memory": f"{memory:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "uvloop": version("uvloop"),
        "Java": java.stderr.splitlines()[1],
        "Apache Kafka": "4.3.1",
        "confluent-kafka": version("confluent-kafka"),
        "busway": version("busway"),
    }
