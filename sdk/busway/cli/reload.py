"""`busway run --reload`: restarts on changes of the source, for development.

Here: watching files and restarting a process.
Not here: the process (`processes`).
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from watchfiles import PythonFilter, awatch

from busway.cli.processes import Child, Command, Stopping, parent_pipe, shown, tell

SETTLE_MS: Final = 200
"""Changes this close count as one: editors write several files or steps."""
MAX_NAMED: Final = 3


class _Changes:
    def __init__(self, folder: Path, stop: asyncio.Event) -> None:
        self._folder = folder
        self._watch = awatch(
            folder, watch_filter=PythonFilter(), debounce=SETTLE_MS, stop_event=stop, raise_interrupt=False
        )
        self._next = asyncio.ensure_future(self._read())

    async def _read(self) -> set[str] | None:
        async for changes in self._watch:
            return {str(Path(path).relative_to(self._folder)) for _, path in changes}
        return None

    @property
    def arrived(self) -> "asyncio.Future[set[str] | None]":
        """Done once files have changed, or the watch was stopped."""
        return self._next

    def take(self) -> str:
        names = sorted(self._next.result() or ())
        self._next = asyncio.ensure_future(self._read())
        more = len(names) - MAX_NAMED
        return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


async def reloading(command: Command, folder: Path) -> int:
    """Run the service until a signal, restarting it after each change of a .py file under `folder`.

    A service that ended by itself is restarted by the next change. Returns the last exit code, 1 if a signal ended it.
    """
    with Stopping() as stopping, parent_pipe() as pipe:
        changes = _Changes(folder, stopping.asked)
        asked: asyncio.Future[Any] = asyncio.ensure_future(stopping.asked.wait())
        code = 0
        try:
            while not stopping.asked.is_set():
                child = await stopping.run(command.arguments, pipe)
                code = await _until_changed(child, changes, asked)
                if not stopping.asked.is_set():
                    tell(f"reload: {changes.take()} changed")
        finally:
            asked.cancel()
            stopping.ask()
            await changes.arrived
        return max(code, 0) or int(code < 0)


async def _until_changed(child: Child, changes: _Changes, asked: "asyncio.Future[Any]") -> int:
    ended = asyncio.ensure_future(child.ended())
    waits: list[asyncio.Future[Any]] = [ended, changes.arrived, asked]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if asked.done():
        return await ended
    if not ended.done():
        ended.cancel()
        return await child.end()
    tell(f"the service {shown(ended.result())}; waiting for a change")
    await asyncio.wait(waits[1:], return_when=asyncio.FIRST_COMPLETED)
    return ended.result()
