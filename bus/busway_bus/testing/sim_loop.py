"""A deterministic event loop: many processes in one thread, in virtual time.

Here: which callback runs next, and when. Each process appears to have its own loop: its callbacks run in the order of
their calls, a round at a time. The seed draws the process of the next round, the order of simultaneous events, and the
duration of work in threads, which is one step some time after its submission. Time advances by a tiny step for each
callback and clock reading, and to the next event when nothing is ready.
Not here: the network (`sim_network`), the disk (`sim_files`), faults (`world`).
"""

# mypy: disable-error-code="override"
# The overrides are less generic than asyncio's signatures.

import asyncio
import heapq
import itertools
import traceback
import warnings
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, NoReturn, Protocol

from busway_bus.testing.sim_process import PROCESS, Crashed, Host, Process
from busway_bus.testing.sim_socket import SimSocket
from busway_bus.testing.sim_tasks import SimFuture, SimHandle, SimTask, SimTimer, end, where
from busway_bus.testing.trace import Trace
from busway_protocol.machine import Machine

STEP_S: Final = 1e-6
"""Virtual time of a callback."""
READING_S: Final = 2e-5
"""Virtual time of a monotonic clock reading, so that busy waits end."""
STEPS_MAX: Final = 5_000_000
VIRTUAL_S_MAX: Final = 24 * 3600.0
_CANCELLED_MIN: Final = 512
"""Cancelled timers before the queue is cleaned."""


class NotSimulated(NotImplementedError):
    """A feature that is not simulated."""


class Stuck(Exception):
    """A workload without end or further events; with all tasks' stacks."""


Event = tuple[float, float, int, Process | None, Any]
"""Time, a random tie-breaker, a number, and a handle with its process.

Without a process it is a call of the world.
"""


class SimThreads(Protocol):
    def submit(self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]) -> SimFuture:
        """Run `func` some time from now; return its future."""


class SimNetwork(Protocol):
    def addresses(self, name: Any, port: Any) -> list[Any]:
        """Resolve a name as `getaddrinfo` does."""

    def free_port(self) -> int:
        """Return an unused port."""

    async def connect(self, factory: Callable[[], Any], name: Any, port: Any) -> tuple[asyncio.Transport, Any]:
        """Open a connection."""

    def listen(self, factory: Callable[[], Any], host: Any, port: Any, *, start: bool) -> asyncio.AbstractServer:
        """Bind a port on the running process's host."""

    def end(self) -> None:
        """End all connections with the world."""


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a world; methods of asyncio's as there.

    Attributes:
        chance: decides the order of events.
        problems: unhandled exceptions in live processes.
        steps: callbacks run so far.
    """

    def __init__(self, seed: object, *, steps_max: int = STEPS_MAX, virtual_s_max: float = VIRTUAL_S_MAX) -> None:
        super().__init__()
        self._seed = seed
        self._now = 0.0
        self._events: list[Event] = []
        self._cancelled = 0
        self._numbers = itertools.count()
        self._runnable: list[Process] = []
        self._steps_max = steps_max
        self._virtual_s_max = virtual_s_max
        self.steps = 0
        self.chance = Random(f"{seed}/order")  # noqa: S311 - a simulation can be run again
        self.trace = Trace()
        self.problems: list[str] = []
        self.hosts: dict[str, Host] = {}
        self.processes: list[Process] = []
        self.world = self.new_process("world")
        self._network: SimNetwork
        self._threads: SimThreads

    def attach(self, network: "SimNetwork", threads: "SimThreads") -> None:
        self._network, self._threads = network, threads

    # Processes

    def host(self, name: str) -> Host:
        host = self.hosts.get(name)
        if host is None:
            number = len(self.hosts)
            host = self.hosts[name] = Host(name, f"10.0.{number // 250}.{number % 250 + 1}")
        return host

    def new_process(self, host_name: str) -> Process:
        process = Process(self.host(host_name), self._seed, self.time, self._reading)
        self.processes.append(process)
        return process

    @property
    def machine(self) -> Machine:
        """The running process's machine (`busway.net.machine.current_machine`)."""
        return PROCESS.get(self.world).machine

    def crash(self, process: Process, why: str) -> None:
        """End a process at once, without its sockets (those are the network's)."""
        if process.dead:
            return
        self.tell(process, why)
        process.dead = True
        process.ready.clear()
        process.stalled.clear()
        waiting, process.waiting = process.waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(Crashed(f"{process.name}: {why}"))
                future.exception()  # asyncio logs an exception that is never retrieved

    def freeze(self, process: Process) -> None:
        """Stop a process, as SIGSTOP does; its events queue up."""
        if not process.dead and not process.frozen:
            self.tell(process, "frozen")
            process.frozen = True
            process.stopped += 1

    def thaw(self, process: Process) -> None:
        if process.dead or not process.frozen:
            return
        self.tell(process, "thawed")
        process.frozen = False
        self._go_on(process)

    def _go_on(self, process: Process) -> None:
        process.stopped -= 1
        if process.stopped or process.dead:
            return
        stalled, process.stalled = process.stalled, []
        for work in stalled:
            self.later(self.chance.uniform(0, 0.001), work)
        self.wake(process)

    def tell(self, process: Process, what: str) -> None:
        self.trace.add(self._now, process.name, what)

    # Time

    def time(self) -> float:
        return self._now

    def _reading(self) -> float:
        self._now += READING_S
        return self._now

    # Scheduling

    def wake(self, process: Process) -> None:
        if not process.queued and not process.stopped and process.ready:
            process.queued = True
            self._runnable.append(process)

    def put(self, handle: SimHandle) -> None:
        self.queue(handle._context.get(PROCESS, self.world), handle)

    def queue(self, process: Process, handle: SimHandle | SimTimer) -> None:
        """Run a handle in the process's next round."""
        if not process.dead:
            process.ready.append(handle)
            if not process.queued and not process.stopped:
                process.queued = True
                self._runnable.append(process)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Handle:
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, context)
        process = context.get(PROCESS, self.world)
        if not process.dead:
            process.ready.append(handle)
            if not process.queued and not process.stopped:
                process.queued = True
                self._runnable.append(process)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> TimerHandle:
        if context is None:
            context = copy_context()
        handle = SimTimer(when, callback, args, self, context)
        process = context.get(PROCESS, self.world)
        heapq.heappush(self._events, (when, self.chance.random(), next(self._numbers), process, handle))
        return handle

    def later(self, delay: float, work: Callable[[], None]) -> None:
        """Call outside of every process, on the wire or in a thread."""
        heapq.heappush(self._events, (self._now + delay, self.chance.random(), next(self._numbers), None, work))

    def at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, self.chance.random(), next(self._numbers), None, work))

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MIN and self._cancelled * 2 > len(self._events):
            self._events[:] = [event for event in self._events if event[3] is None or event[4]._callback is not None]
            heapq.heapify(self._events)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Run rounds until the loop is to stop; asyncio's loops do one at each call."""
        events, runnable, bits = self._events, self._runnable, self.chance.getrandbits
        while True:
            if not runnable:
                self._next_moment()
            while events and events[0][0] <= self._now:
                _, _, _, process, what = heapq.heappop(events)
                if process is None:
                    what()
                    continue
                what._scheduled = False
                if what._callback is None:
                    self._cancelled -= 1
                elif not process.dead:
                    process.ready.append(what)
                    if not process.queued and not process.stopped:
                        process.queued = True
                        runnable.append(process)
            if (count := len(runnable)) > 1:
                size = count.bit_length()
                number = bits(size)
                while number >= count:  # as `randrange`, at a third of its cost
                    number = bits(size)
                runnable[number], runnable[-1] = runnable[-1], runnable[number]
            if runnable:
                self._round(runnable.pop())
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _next_moment(self) -> None:
        events = self._events
        while events and events[0][3] is not None and events[0][4]._callback is None:
            heapq.heappop(events)
            self._cancelled -= 1
        if not events:
            self._stuck("nothing is left to happen, and the workload has not ended")
        self._now = max(self._now, events[0][0])
        if self._now > self._virtual_s_max:
            self._stuck(f"{self._virtual_s_max:g} s of virtual time are over, and the workload has not ended")

    def _round(self, process: Process) -> None:
        ready, host = process.ready, process.host
        todo = len(ready)
        self.steps += todo
        for _ in range(todo):
            if process.stopped or process.dead:
                break
            handle = ready.popleft()
            if (callback := handle._callback) is not None:
                self._now += STEP_S
                try:
                    handle._context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as problem:  # noqa: BLE001 - passed to the handler, as asyncio does
                    self.call_exception_handler(
                        {"message": f"Exception in {handle!r}", "exception": problem, "handle": handle}
                    )
                if host.waited_s:
                    self._wait_for_disk(process)
        if ready and not process.stopped:
            self._runnable.append(process)
        else:
            process.queued = False
        if self.steps > self._steps_max:
            self._stuck(f"{self._steps_max} steps are over, and the workload has not ended")

    def _wait_for_disk(self, process: Process) -> None:
        waited_s, process.host.waited_s = process.host.waited_s, 0.0
        process.stopped += 1
        self.later(waited_s, lambda: self._go_on(process))

    def _stuck(self, what: str) -> NoReturn:
        raise Stuck(f"{what}\n{self.stacks()}")

    def stacks(self) -> str:
        lines: list[str] = []
        for process in self.processes:
            if process.dead:
                continue
            for task in process.tasks:
                if not task.done():
                    lines.append(f"{process.name}: {task.get_name()}")
                    lines += [f"    {where}" for where in where(task.get_coro())]
        return "\n".join(lines)

    # Futures and tasks

    def get_debug(self) -> bool:
        """Return False: each handle, future and task asks; debug mode looks at threads and real time."""
        return False

    def create_future(self) -> SimFuture:
        future = SimFuture(loop=self)
        future.number = next(self._numbers)
        future.process = PROCESS.get(self.world)
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None, **options: Any) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        process = PROCESS.get(self.world) if context is None else context.get(PROCESS, self.world)
        process.tasks_made += 1
        name = name or f"{process.name}/{process.tasks_made}"
        task = SimTask.__new__(SimTask)
        task.process, task.number = process, next(self._numbers)  # before any set contains it
        SimTask.__init__(task, coro, loop=self, name=name, context=context, **options)
        process.keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> SimFuture:
        return self._threads.submit(executor, func, args)

    # The network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return self._network.addresses(host, port)

    def listening_socket(self, host: str, port: int) -> SimSocket:
        """Return a socket for `create_server`; `busway.net.listening.bind` uses it."""
        return SimSocket((host, port or self._network.free_port()))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        _refuse(options, "create_connection")
        return await self._network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        start_serving = options.pop("start_serving", True)
        if isinstance(options.get("sock"), SimSocket):
            host, port = options.pop("sock").getsockname()
        _refuse(options, "create_server")
        return self._network.listen(protocol_factory, host, port, start=start_serving)

    # Not simulated

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """Do nothing: signals are not simulated."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    async def subprocess_exec(self, *_: Any, **__: Any) -> Any:
        raise NotSimulated(
            "a simulated process cannot start a program; run that part in the loop, or outside of the simulation"
        )

    async def subprocess_shell(self, *_: Any, **__: Any) -> Any:
        await self.subprocess_exec()

    def add_reader(self, *_: Any) -> Any:
        raise NotSimulated("the simulated network has no file descriptors; use create_connection and create_server")

    def add_writer(self, *_: Any) -> Any:
        self.add_reader()

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: the system has no events here."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never blocks."""

    # SimulationErrors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        handle, future = context.get("handle"), context.get("future") or context.get("task")
        if handle is not None:
            process = handle._context.get(PROCESS, self.world)
        else:
            process = getattr(future, "process", None) or PROCESS.get(self.world)
        if process.dead or self.is_closed():
            return
        problem = context.get("exception")
        text = f"{process.name}: {context.get('message')}"
        if problem is not None:
            text += "\n" + "".join(traceback.format_exception(problem))
        elif future is not None:
            text += f" {future!r}"
        self.problems.append(text)
        self.tell(process, f"mistake: {type(problem).__name__ if problem is not None else context.get('message')}")

    def end(self) -> None:
        """End the world. Its processes' state stays until `bury`."""
        for process in self.processes:
            process.dead = True
            process.ready.clear()
        self._events.clear()
        self._runnable.clear()
        self._network.end()
        self.close()

    def bury(self) -> None:
        """Close all tasks, after all checks: this runs their `finally` blocks."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that were never awaited
            for process in self.processes:
                for task in process.tasks:
                    if not task.done():
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        end(task.get_coro())
                process.tasks.clear()


def _refuse(options: dict[str, Any], what: str) -> None:
    if options.get("ssl") is not None:
        raise NotSimulated(f"the simulated network carries no TLS: {what}(ssl=…); use PLAINTEXT in a simulation")
    if options.get("sock") is not None:
        raise NotSimulated(f"the simulated network has no sockets of the system: {what}(sock=…); give host and port")
