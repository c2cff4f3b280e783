"""A process that judges schemas for a registry, one after another, until its input ends.

What lives here: the loop over questions, and the bounds that the process sets itself. What does not: who asks and how long it waits
(`pool`), the rules (`domain`). It loads nothing but the rules, so it starts in less than a tenth of a second.

A question and an answer are a length in eight bytes and a pickle; both ends are ours and no other process has the pipes.
"""

import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from busway_registry.domain.avro.recent import RecentlyParsed
from busway_registry.domain.compatibility.breaches import Budget, TooMuchWork
from busway_registry.domain.compatibility.check import explain
from busway_registry.domain.errors import RegistryError
from busway_registry.domain.schemas import build

LENGTH: Final = struct.Struct(">Q")
MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Address space of a worker: three times what the dearest question within all other bounds takes."""
LONGEST_S: Final = 60
"""A worker whose registry was killed in the middle of a question ends by then at the latest."""
_CACHED_CHARS: Final = 2_000_000
"""About 100 MiB of trees: thirty versions of a record of two thousand fields."""
_TIRED_BYTES: Final = 256 * 1024 * 1024
"""A worker that ever held so much makes room for a fresh one: what the interpreter took it seldom gives back."""
_NICE: Final = 5
"""Judging waits where the servers of this machine have something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker says.

    Attributes:
        kind: how it ended: with `value`, refused with `code` and `text`, or one of its bounds; or a defect of ours, described in `text`.
        value: what was asked for.
        code: Confluent's error code.
        text: why not.
        last: the worker ends now.
    """

    kind: Literal["done", "refused", "too much work", "too much memory", "broken"]
    value: Any = None
    code: int = 0
    text: str = ""
    last: bool = False


def judge(parse: RecentlyParsed, task: str, arguments: dict[str, Any]) -> Any:
    """The artifact of a request, or what speaks against one and the steps that are left."""
    if task == "build":
        return build(**arguments)
    budget = Budget(arguments.pop("steps"))
    return explain(**arguments, budget=budget, parse=parse), budget.left


def _answer(parse: RecentlyParsed, task: str, arguments: dict[str, Any]) -> Answer:
    try:
        value = judge(parse, task, arguments)
    except RegistryError as refusal:
        return Answer(kind="refused", code=refusal.code, text=refusal.message)
    except TooMuchWork as problem:
        return Answer(kind="too much work", text=str(problem), last=_tired())
    except MemoryError:
        return Answer(kind="too much memory", last=True)
    except Exception:  # noqa: BLE001 - the top of the process: the registry logs it
        return Answer(kind="broken", text=traceback.format_exc(), last=True)
    return Answer(kind="done", value=value, last=_tired())


def _tired() -> bool:
    return peak_memory_bytes() > _TIRED_BYTES


def peak_memory_bytes() -> int:
    """The most that this process ever had resident. On Linux `getrusage` begins with what the process that started it had."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def set_bounds() -> None:
    """Those of this process, for good."""
    with suppress(ValueError, OSError):  # where the system knows no such bound, or has set a narrower one
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(OSError):
        os.nice(_NICE)


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Until the questions end, or this worker does."""
    parse = RecentlyParsed(_CACHED_CHARS)
    while header := questions.read(LENGTH.size):
        (size,) = LENGTH.unpack(header)
        task, arguments = pickle.loads(questions.read(size))  # noqa: S301 - from the registry that started this process
        signal.alarm(LONGEST_S)
        answer = _answer(parse, task, arguments)
        del task, arguments
        signal.alarm(0)
        data = pickle.dumps(answer)
        answers.write(LENGTH.pack(len(data)) + data)
        answers.flush()
        if answer.last:
            return
