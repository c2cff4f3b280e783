"""The C library's allocator, set up for a process that handles buffers of a megabyte all day.

What lives here: one call. What does not: anything that depends on it. By default glibc gives such a buffer back to the kernel as soon
as it is freed, and the kernel clears every page of the next one; that was half of the CPU time of a fetch.
"""

import contextlib
import ctypes
import functools
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 4 * 1024 * 1024
"""Larger buffers are seldom, and go back to the kernel at once: among others they leave holes, which stay. Broker answers of 30 MiB to
thirty clients left 260 MiB behind."""
_TRIM_BYTES: Final = 64 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> None:
    """Let the process keep up to 64 MiB that it has freed; nothing happens where the C library is another one."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
