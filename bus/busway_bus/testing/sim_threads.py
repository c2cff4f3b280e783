"""Simulated work in threads, without threads.

Here: the executors of processes. Work happens at one moment, some time after its submission, when a thread is free.
Not here: effects of the disk (`sim_files`).
"""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final

from busway_bus.testing.sim_loop import SimLoop
from busway_bus.testing.sim_process import PROCESS, Process
from busway_bus.testing.sim_tasks import SimFuture, SimHandle

THREADS: Final = 8
"""Threads of a process's default executor."""
_BEGIN_S: Final = (0.00005, 0.002)
"""Time from submission to execution, on a host of normal speed."""


class _Pool:
    def __init__(self, executor: Any, threads: int) -> None:
        self.executor = executor  # keeps its id unique
        self.free = threads
        self.waiting: deque[Callable[[], None]] = deque()


class Threads:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._pools: dict[tuple[Process, int | None], _Pool] = {}

    def submit(self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]) -> SimFuture:
        loop = self._loop
        process, context, future = PROCESS.get(loop.world), copy_context(), loop.create_future()
        pool = self._pool(process, executor)

        def begin() -> None:
            loop.later(loop.chance.uniform(*_BEGIN_S) * process.host.slowness, work)

        def work() -> None:
            if process.dead:
                return
            if process.stopped:
                process.stalled.append(work)
                return
            if future.cancelled() and loop.chance.random() < 0.5:  # else it began before the cancellation
                over()
            else:
                waited_s = self._do(process, context, future, func, args)
                if waited_s:
                    loop.later(waited_s, over)
                else:
                    over()

        def over() -> None:
            if pool.waiting:
                pool.waiting.popleft()()
            else:
                pool.free += 1

        if pool.free:
            pool.free -= 1
            begin()
        else:
            pool.waiting.append(begin)
        return future

    def _pool(self, process: Process, executor: Any) -> _Pool:
        key = (process, None if executor is None else id(executor))
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(executor, getattr(executor, "_max_workers", THREADS))
        return pool

    def _do(
        self, process: Process, context: Context, future: SimFuture, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> float:
        """Run `func`; return its disk waits in s, which delay its end."""
        loop, host = self._loop, process.host
        loop.tell(process, f"thread {getattr(func, '__qualname__', None) or type(func).__name__}")
        outcome: Any = None
        problem: BaseException | None = None
        try:
            outcome = context.run(func, *args)
        except BaseException as raised:  # noqa: BLE001 - passed to the future
            problem = raised
        waited_s, host.waited_s = host.waited_s, 0.0

        def tell() -> None:
            if future.cancelled():
                return
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(outcome)

        handle = SimHandle(tell, (), context)
        if waited_s:
            loop.later(waited_s, lambda: loop.put(handle))
        else:
            loop.put(handle)
        return waited_s
