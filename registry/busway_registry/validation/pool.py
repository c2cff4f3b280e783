"""Validation processes: started on demand, bounded, killed on timeout.

Here: assigning requests to processes, deadlines, handling of crashed processes.
Not here: validation (`worker`), the choice to validate in this process (`validator`).

The standard library's pools cannot kill one process and keep the others.
"""

import asyncio
import logging
import os
import pickle
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Any, Final

from busway_registry.domain.compatibility.breaches import TooMuchWork
from busway_registry.domain.errors import RegistryError, invalid_schema, overloaded, timed_out
from busway_registry.validation.worker import LENGTH, MEMORY_BYTES, Answer

logger = logging.getLogger("busway.registry")

WORKERS: Final = 2
"""Limit of processes; each uses a processor while it validates."""
_MOST_WAITING: Final = 64
"""Limit of waiting requests, with their schemas in memory; more are refused."""


class Pool:
    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(WORKERS)
        self._idle: list[Process] = []
        self._alive: dict[int, Process] = {}
        self._waiting = 0

    @property
    def pids(self) -> list[int]:
        return [pid for pid, process in self._alive.items() if process.returncode is None]

    async def ask(self, task: str, arguments: dict[str, Any], *, within_s: float) -> Any:
        """Run `worker.judge` in a process.

        Raises:
            RegistryError: a refusal by the rules; 42201 too much memory; 50002 too much time, including the wait for a
                process; 503 too many waiting.
            TooMuchWork: the budget is spent.
        """
        if self._waiting >= _MOST_WAITING:
            raise overloaded()
        self._waiting += 1
        try:
            async with asyncio.timeout(within_s), self._semaphore:
                answer = await self._ask_one(task, arguments)
        except TimeoutError:
            raise timed_out("The schema takes too long to judge; make it smaller, or try again later") from None
        finally:
            self._waiting -= 1
        return _value(answer)

    async def _ask_one(self, task: str, arguments: dict[str, Any]) -> Answer:
        question = pickle.dumps((task, arguments))
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                break
        else:
            worker = await self._start()
        try:
            answer = await _exchange(worker, question)
        except (EOFError, ConnectionError) as problem:
            await self._end(worker)
            logger.error("a process that judged a schema ended with %s: %r", worker.returncode, problem)
            raise timed_out("The schema could not be judged to the end; make it smaller, or try again later") from None
        except BaseException:
            await self._end(worker)
            raise
        if answer.last:
            await self._end(worker)
        else:
            self._idle.append(worker)
        return answer

    async def close(self) -> None:
        """Kill all processes; no request may follow."""
        self._idle.clear()
        for worker in tuple(self._alive.values()):
            await self._end(worker)

    async def _start(self) -> Process:
        # A new session: Ctrl-C is for the registry. -P: no imports from the current folder.
        command = (sys.executable, "-P", "-m", "busway_registry.validation")
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._alive[worker.pid] = worker
        return worker

    async def _end(self, worker: Process) -> None:
        if worker.returncode is None:
            # Not `worker.kill()`: it reaps an ended process and loses its exit status.
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        if worker.stdin is not None:
            worker.stdin.close()
        await worker.wait()
        self._alive.pop(worker.pid, None)


def _value(answer: Answer) -> Any:
    match answer.kind:
        case "done":
            return answer.value
        case "refused":
            raise RegistryError(answer.code, answer.text)
        case "too much work":
            raise TooMuchWork(answer.text)
        case "too much memory":
            raise invalid_schema(f"judging it takes more than {MEMORY_BYTES // 2**20} MiB of memory; make it smaller")
        case "broken":
            raise RuntimeError(answer.text)


async def _exchange(worker: Process, question: bytes) -> Answer:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(LENGTH.pack(len(question)))
    worker.stdin.write(question)
    await worker.stdin.drain()
    (size,) = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
    answer: Answer = pickle.loads(await worker.stdout.readexactly(size))  # noqa: S301 - from a process that we started
    return answer
