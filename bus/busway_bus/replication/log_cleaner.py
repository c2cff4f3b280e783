"""Background compaction of logs, in slices short enough not to delay producers.

Here: the order of logs, the thread, the pauses.
Not here: which records stay (`log.compaction`), writing them (`log.cleaner`).
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from weakref import WeakSet

from busway.net.machine import OS
from busway_bus.kernel.limits import CLEANER_PAUSE_S, SLICE_S
from busway_bus.log.cleaner import Cleaner, cleanable
from busway_bus.log.compaction import Plan
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.errors import ProtocolError
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.cleaner")


class LogCleaner:
    """Cleaner of a store's compacted logs, in descending order of dirty ratio.

    Args:
        slice_s, pause_s: seconds of work, and of the pause after it.
    """

    def __init__(
        self, store: LogStore, machine: Machine = OS, *, slice_s: float = SLICE_S, pause_s: float = CLEANER_PAUSE_S
    ) -> None:
        self._monotonic_s = machine.monotonic_s
        self._store = store
        self._slice_s = slice_s
        self._pause_s = pause_s
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()

    async def run(self, now_ms: int) -> int:
        waiting = []
        for key, candidate in tuple(self._store.logs.items()):
            if candidate.config.compacted and candidate not in self._uncleanable:
                chosen = await off_loop(functools.partial(self._due, key, candidate, now_ms))
                if chosen is not None:
                    waiting.append((chosen.ratio, key, candidate, chosen))
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        done = 0
        for _, key, candidate, chosen in waiting:
            if self._store.logs.get(key) is candidate:
                done += await self._clean(key, candidate, chosen, now_ms)
        return done

    def _due(self, key: tuple[str, int], candidate: PartitionLog, now_ms: int) -> Plan | None:
        try:
            return cleanable(candidate, cleaned=self._store.cleaned_offset(key), now_ms=now_ms)
        except (ProtocolError, OSError) as problem:
            self._give_up(candidate, problem)
            return None

    async def _clean(self, key: tuple[str, int], candidate: PartitionLog, chosen: Plan, now_ms: int) -> bool:
        cleaner = Cleaner(candidate, chosen, now_ms=now_ms)
        before = candidate.size_bytes
        try:
            await self._slices(cleaner.map_keys())
            for group in cleaner.groups():
                await self._slices(cleaner.write(group))
                if not await off_loop(cleaner.prepare):
                    continue
                if not cleaner.put_in_place(group, now_ms):
                    return False
                await off_loop(functools.partial(cleaner.settle, now_ms))
        except ProtocolError as problem:
            if not candidate.closed:
                self._give_up(candidate, problem)
            return False
        except OSError as problem:
            if cleaner.unsettled and not candidate.closed:
                self._give_up(candidate, problem)
            elif not candidate.closed:
                logger.warning("%s could not be compacted this time: %s", candidate.directory, problem)
            return False
        finally:
            cleaner.abandon()
        if candidate.closed:
            return False
        self._store.note_cleaned(key, cleaner.end)
        logger.info(
            "compacted %s up to %d: %d to %d bytes", candidate.directory, cleaner.end, before, candidate.size_bytes
        )
        return True

    def _give_up(self, candidate: PartitionLog, problem: Exception) -> None:
        self._uncleanable.add(candidate)
        logger.error("%s is not compacted any more until the next start: %s", candidate.directory, problem)

    async def _slices(self, steps: Iterator[None]) -> None:
        more = functools.partial(_advance, steps, self._slice_s, self._monotonic_s)
        while await off_loop(more):  # noqa: ASYNC110 - a pause, there is no event to wait for
            await asyncio.sleep(self._pause_s)


def _advance(steps: Iterator[None], budget_s: float, monotonic_s: Callable[[], float]) -> bool:
    end = monotonic_s() + budget_s
    return any(monotonic_s() >= end for _ in steps)
