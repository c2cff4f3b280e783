"""The pending tasks of the running event loops, for the report of a test that took too long.

Here: each task with the lines at which it waits, from its outermost coroutine to the innermost.
Not here: threads, which pytest-timeout prints.
"""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any


def pending_tasks() -> str:
    """Return a text with a paragraph for each pending task."""
    # By `type`: `isinstance` asks a weak proxy for the class of an object that may be gone.
    tasks = [task for task in gc.get_objects() if issubclass(type(task), asyncio.Task) and not task.done()]
    return "\n".join("\n".join((f"{task.get_name()}:", *_places(task.get_coro()))) for task in tasks)


def _places(waiting: Any) -> Iterator[str]:
    """Return file, line and function of each coroutine or generator that awaits the next."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        code = None if frame is None else frame.f_code
        yield f"    {waiting!r}" if code is None else f"    {code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
