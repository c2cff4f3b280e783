"""The processes that judge schemas: started when the first is needed, bounded, killed when one takes too long.

What lives here: who of the waiting is served by which process, deadlines, what a process that ends means for its client. What does
not: what is judged (`worker`), what is judged right here instead (`validator`). The standard library's pools cannot end one process and
keep the others.
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
"""Processes; each takes a processor while it judges, and the machine has other things to do."""
_MOST_WAITING: Final = 64
"""Requests that wait for a process, with their schemas in memory; the next ones are refused."""


class Pool:
    """Up to `WORKERS` processes; none until one is needed."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(WORKERS)
        self._idle: list[Process] = []
        self._alive: dict[int, Process] = {}
        self._waiting = 0

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [pid for pid, process in self._alive.items() if process.returncode is None]

    async def ask(self, task: str, arguments: dict[str, Any], *, within_s: float) -> Any:
        """What `worker.judge` makes of it.

        Raises:
            RegistryError: what the rules refuse; 42201 too much memory; 50002 too much time, with the wait for a process; 503 too
                many wait.
            TooMuchWork: the budget is spent.
        """
        if self._waiting >= _MOST_WAITING:
            raise overloaded()
        self._waiting += 1
        try:
            async with asyncio.timeout(within_s), self._turns:
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
        """Stop all processes. No request may follow."""
        self._idle.clear()
        for worker in tuple(self._alive.values()):
            await self._end(worker)

    async def _start(self) -> Process:
        # A session of its own: Ctrl-C is for the registry. -P: no module of the folder that it was started in.
        command = (sys.executable, "-P", "-m", "busway_registry.validation")
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._alive[worker.pid] = worker
        return worker

    async def _end(self, worker: Process) -> None:
        if worker.returncode is None:
            # Not `worker.kill()`: it reaps a process that has ended, and its exit status is lost.
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
