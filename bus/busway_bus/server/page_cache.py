"""Reads parts of files into the page cache off the event loop.

Here: the threads that wait for the disk: `sendfile` and `pread` of an uncached page would delay all clients.
Not here: which bytes, and whether they are cached (`stream`, `FileSlice`).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from busway_bus.kernel.limits import COLD_READS_MAX
from busway_bus.log.file_slice import FileSlice


class PageCache:
    """Reads pages into memory, `COLD_READS_MAX` slices at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(COLD_READS_MAX, thread_name_prefix="busway-cold-reads")

    def bring(self, piece: FileSlice, count: int, done: Callable[["asyncio.Future[None]"], None]) -> None:
        reading = asyncio.get_running_loop().run_in_executor(self._threads, partial(piece.warm, count))
        reading.add_done_callback(done)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
