"""Bringing parts of files into memory beside the event loop.

What lives here: the threads that wait for the disk. What does not: which bytes, and whether they are there already (`stream`, `FileSlice`).
`sendfile` and `pread` wait where a page is not in the kernel's cache, and all clients would wait with the one that asked for it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from busway_bus.kernel.limits import COLD_READS_MAX
from busway_bus.log.file_slice import FileSlice


class PageCache:
    """Brings pages into memory, `COLD_READS_MAX` slices at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(COLD_READS_MAX, thread_name_prefix="busway-cold-reads")

    def bring(self, piece: FileSlice, count: int, done: Callable[["asyncio.Future[None]"], None]) -> None:
        """Have the next `count` bytes of a slice read; `done` is called with how it went."""
        reading = asyncio.get_running_loop().run_in_executor(self._threads, partial(piece.warm, count))
        reading.add_done_callback(done)

    def close(self) -> None:
        """Begin no more reads; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
