"""Settings of the C allocator for buffers of a megabyte.

Here: one call.

By default glibc returns such a buffer to the kernel at once, which clears every page of the next: half of the CPU time
of a fetch.
"""

import contextlib
import ctypes
import functools
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 4 * 1024 * 1024
"""Larger buffers are rare, and returned at once.

Otherwise they leave holes: responses of 30 MiB to thirty clients left 260 MiB.
"""
_TRIM_BYTES: Final = 64 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> None:
    """Keep up to 64 MiB of freed memory. Only glibc supports it."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
