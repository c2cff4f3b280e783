"""The events of a simulation, for a reader.

Here: the lines, and extensions that record an instance's events.
Not here: packets (the world's trace).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from busway.app.extending.extension import Extension, Handling
from busway.types import TopicPartition

LINES_MAX: Final = 120
"""Limit of a trace's lines; a longer one loses its middle."""
_NAMES_MAX: Final = 4


@dataclass(slots=True)
class _Line:
    at_s: float
    who: str
    what: str
    last: int = -1


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: list[_Line] = []

    def tell(self, who: str, what: str) -> None:
        self._lines.append(_Line(self._now(), who, what))

    def handled(self, who: str, handling: Handling) -> None:
        """Add the end of a handler's call; consecutive records share a line."""
        place = f"{handling.topic}-{handling.partition}"
        what = f"{handling.outcome.replace('_', '-')} {place} offset"
        last = handling.offset + handling.records - 1
        if handling.problem is not None:
            self.tell(who, f"{what} {handling.offset}, attempt {handling.attempt}: {handling.problem!r:.120}")
            return
        before = self._lines[-1] if self._lines else None
        if (
            before is not None
            and before.who == who
            and before.what.startswith(what)
            and before.last + 1 == handling.offset
        ):
            first = before.what.removeprefix(what).split()[0]
            before.what, before.last = f"{what} {first} to {last}", last
            return
        text = f"{what} {handling.offset}" + (f" to {last}" if handling.records > 1 else "")
        self._lines.append(_Line(self._now(), who, text, last))

    def text(self) -> str:
        lines = [f"{line.at_s:9.3f}  {line.who:<10} {line.what}" for line in self._lines]
        if len(lines) > LINES_MAX:
            half = LINES_MAX // 2
            lines = [*lines[:half], f"           … {len(lines) - 2 * half} more lines …", *lines[-half:]]
        return "\n".join(lines)


class TraceRecorder(Extension):
    """Adds an instance's events to the trace."""

    def __init__(self, trace: Trace, who: str) -> None:
        self._trace = trace
        self._who = who

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if partitions:
            self._trace.tell(self._who, f"is given {_shown(partitions)}")
        return {}

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._trace.tell(self._who, f"gives up {_shown(partitions)}")

    def finished(self, handling: Handling) -> None:
        self._trace.handled(self._who, handling)


class CrashInjector(TraceRecorder):
    """Also kills the instance at its drawn step, and adds that."""

    def __init__(self, trace: Trace, who: str, kills: dict[str, int], kill: Callable[[str], None]) -> None:
        super().__init__(trace, who)
        self._kills = kills
        self._kill = kill

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        left = self._kills.get(point)
        if left is None:
            return
        self._kills[point] = left - 1
        if left == 1:
            del self._kills[point]
            self._kill(f"is killed {point} of {topic}-{partition} offset {offset}")
            await asyncio.get_running_loop().create_future()


def _shown(partitions: Sequence[TopicPartition]) -> str:
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more
