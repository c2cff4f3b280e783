"""A process that validates schemas for a registry, one at a time, until its input ends.

Here: the loop, and the process's limits.
Not here: queueing and deadlines (`pool`), rules (`domain`).

It imports only the rules, so it starts in less than 0.1 s. Requests and responses are a length in eight bytes and a
pickle; only the registry and this process have the pipes.
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
"""Address space of a worker: three times the most expensive valid request's."""
LONGEST_S: Final = 60
"""A worker whose registry was killed during a request ends by then."""
_CACHED_CHARS: Final = 2_000_000
"""About 100 MiB of trees: 30 versions of 2,000 fields."""
_TIRED_BYTES: Final = 256 * 1024 * 1024
"""Peak that ends a worker, as the interpreter seldom returns memory."""
_NICE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A worker's response.

    Attributes:
        kind: done with `value`, refused with `code` and `text`, over a limit, or broken: a defect described in `text`.
        code: Confluent's error code.
        last: the worker ends now.
    """

    kind: Literal["done", "refused", "too much work", "too much memory", "broken"]
    value: Any = None
    code: int = 0
    text: str = ""
    last: bool = False


def judge(parse: RecentlyParsed, task: str, arguments: dict[str, Any]) -> Any:
    """Return the artifact of a request, or breaches and the steps left."""
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
    """Return this process's peak resident memory. On Linux `getrusage` would start with the parent's."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def set_bounds() -> None:
    with suppress(ValueError, OSError):  # unsupported by the system, or limited further
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(OSError):
        os.nice(_NICE)


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
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
