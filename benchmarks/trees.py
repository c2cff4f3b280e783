"""CPU of a process and of all below it.

Here: `/proc`, walked by parents.
Not here: single processes and the machine (`machine`).
"""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_tree(root: int) -> float:
    """User and system time of a process and all below it, those that have ended and were waited for included."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since
            parents.setdefault(int(fields[1]), []).append(int(place.name))
            used[int(place.name)] = sum(map(int, fields[11:15]))
    waiting, total = [root], 0
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0)
        waiting += parents.get(pid, [])
    return total / _TICKS
