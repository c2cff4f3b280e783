"""A simulated world: real nodes and clients, unchanged, on a deterministic loop with a network and disks in memory.

What lives here: making hosts, nodes and processes, running a workload among them, and what a test does to them: crash, power cut, freeze,
cut connections. What does not: what is drawn to happen and what has to hold then (workloads, and checks of histories).

    def test_an_acknowledged_record_outlives_a_power_cut() -> None:
        async def workload(world: World) -> None:
            node = world.node("n1")
            await node.start()
            client = world.process("client")

            async def send() -> None:
                async with busway.Producer(node.bootstrap_servers) as producer:
                    await producer.send_and_wait("t", b"precious")

            await client.run(send)
            node.power_cut()
            await node.start()
            assert await client.run(all_records, node.bootstrap_servers) == [b"precious"]

        World(seed=7).run(workload)

The same seed gives the same history; `World.trace` has it, a line for each event. A workload runs in a process of its own, `world`, which
nobody crashes; what a client does belongs into `Process.run` or `Process.start`, so that it can be crashed and frozen.
"""

import asyncio
import atexit
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.os_files import DirectoryInUse
from busway_bus.node import Node
from busway_bus.testing.sim_files import SimFiles
from busway_bus.testing.sim_loop import STEPS_MAX, VIRTUAL_S_MAX, SimLoop, Stuck
from busway_bus.testing.sim_network import Network
from busway_bus.testing.sim_process import PROCESS, Crashed, Host, Process
from busway_bus.testing.sim_threads import Threads
from busway_bus.testing.trace import Trace
from busway_protocol.machine import Machine

__all__ = ["Crashed", "Mistakes", "SimNode", "SimProcess", "Stuck", "World"]

P = ParamSpec("P")
R = TypeVar("R")
PORT: Final = 9092
_PROPERTIES: Final = {
    "busway.insecure": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
_COLLECTED_EVERY: Final = 20
"""Worlds between two collections of garbage: it is off while one runs, as it would take a fifth of the time."""
_LOG_LINES_MAX: Final = 10_000


class Mistakes(AssertionError):
    """The workload ended, but code under test made a mistake: an exception that nobody took, or a traceback in its log."""


class _Log(logging.Handler):
    """What the code under test logs, with when and where."""

    def __init__(self, world: "World") -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        loop = self._world.loop
        process = PROCESS.get(loop.world)
        if process.dead:
            return
        text = record.getMessage()
        loop.tell(process, f"log {record.levelname} {text}")
        if record.exc_info and record.exc_info[1] is not None:
            loop.problems.append(f"{process.name}: {text}\n{logging.Formatter().formatException(record.exc_info)}")


class SimProcess:
    """A process in which clients, services, or anything else that runs on asyncio, live.

    Attributes:
        process: its machine and state.
    """

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self.process = process

    @property
    def name(self) -> str:
        """Of this process: its host's, and from the second one on a number."""
        return self.process.name

    @property
    def alive(self) -> bool:
        """Whether it has not been crashed."""
        return not self.process.dead

    def start(
        self, work: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[R]":
        """Begin `work` in this process; the future has its outcome, or `Crashed` as soon as the process is."""
        outcome: asyncio.Future[R] = self._world.loop.create_future()
        if self.process.dead:
            outcome.set_exception(Crashed(f"{self.name} is not running"))
            return outcome
        self.process.waiting[outcome] = None
        task = self._world.loop.create_task(work(*args, **kwargs), context=self.process.context.copy())
        # The outcome is told in the world's process, whatever becomes of the one in which it came about.
        task.add_done_callback(lambda done: self._tell(done, outcome), context=self.process.context.copy())
        outcome.add_done_callback(lambda _: self._over(task, outcome), context=self._world.loop.world.context.copy())
        return outcome

    def _tell(self, task: "asyncio.Task[R]", outcome: "asyncio.Future[R]") -> None:
        self.process.waiting.pop(outcome, None)
        if outcome.done():
            return
        if task.cancelled():
            outcome.cancel()
        elif (problem := task.exception()) is not None:
            outcome.set_exception(problem)
        else:
            outcome.set_result(task.result())

    def _over(self, task: "asyncio.Task[R]", outcome: "asyncio.Future[R]") -> None:
        self.process.waiting.pop(outcome, None)
        if outcome.cancelled() and not self.process.dead:
            task.cancel()

    async def run(self, work: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `work` returns or raises, run in this process.

        Raises:
            Crashed: the process was crashed before it ended.
        """
        return await self.start(work, *args, **kwargs)

    def crash(self) -> None:
        """Kill it, as SIGKILL does: its sockets are closed, and what it has written stays in the page cache."""
        self._world.crash(self.process)

    def freeze(self) -> None:
        """Stop it, as SIGSTOP does."""
        self._world.loop.freeze(self.process)

    def thaw(self) -> None:
        """Let it go on, as SIGCONT does."""
        self._world.loop.thaw(self.process)

    def jump(self, seconds: float) -> None:
        """Move the wall clock of its host; the monotonic one does not notice."""
        self.process.host.wall_offset_ms += int(seconds * 1000)
        self._world.loop.tell(self.process, f"wall clock jumps by {seconds:g} s")

    @contextlib.contextmanager
    def inside(self) -> Generator[None, None, None]:
        """Make things in this process without waiting: what is called in the block belongs to it."""
        token = PROCESS.set(self.process)
        try:
            yield
        finally:
            PROCESS.reset(token)


class SimNode:
    """A broker of a world: its host and disk, and the process in which it runs now.

    Attributes:
        disk: what outlives crashes; faults of it are set there.
        node: the node itself, None while it does not run.
        exited: done when its process has ended by itself, as it does when the disk has failed; made anew by `start`.
    """

    def __init__(self, world: "World", name: str, properties: Mapping[str, str]) -> None:
        self._world = world
        self.name = name
        self.host = world.loop.host(name)
        self.disk = SimFiles(world.chance(f"{name}/disk"))
        self.disk.waits = self._wait
        self._holder: Process | None = None
        self._properties = {
            "listeners": f"PLAINTEXT://{name}:{PORT}",
            "log.dirs": f"/{name}",
            **_PROPERTIES,
            **properties,
        }
        self.node: Node | None = None
        self.process: SimProcess | None = None
        self.exited: asyncio.Future[None] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients, whether it runs or not."""
        return f"{self.name}:{PORT}"

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self.process is not None and self.process.alive

    async def start(self) -> None:
        """Start it in a new process, on the disk as it is.

        Raises:
            Crashed: the process was crashed before it served.
            Whatever keeps a node from starting.
        """
        assert not self.running, f"{self.name} runs"
        self.disk.power_on()
        if not self.host.up:
            self.disk.cut_power(self._world.chance(f"{self.name}/cut/{self.host.processes}").randrange)
            self.host.up = True
            self._world.network.host_is_back(self.host)
        process = self.process = SimProcess(self._world, self._world.loop.new_process(self.name))
        self._world.loop.tell(process.process, "starts")
        self.node = self._make(BrokerConfig.from_properties(self._properties), process.process.machine)
        try:
            await process.run(self.node.start)
        except Crashed:
            raise
        except BaseException:
            self._world.crash(process.process, "did not start")
            self.node = None
            raise
        self._world.loop.tell(process.process, "serves")
        self.exited = process.start(self._until_failed, self.node, process)
        self.exited.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _make(self, config: BrokerConfig, machine: Machine) -> Node:
        """The node of a new process, which is not started."""
        return Node(config, machine=machine, files=self._open)

    def _open(self, _: str) -> SimFiles:
        process = PROCESS.get()
        if self._holder is not None and not self._holder.dead and self._holder is not process:
            raise DirectoryInUse(f"the data directory of {self.name} is in use by {self._holder.name}")
        self._holder = process
        return self.disk

    async def _until_failed(self, node: Node, process: SimProcess) -> None:
        """As `busway_bus.run.serve` does."""
        await node.failed.wait()
        await node.stop()
        self._world.loop.call_soon(
            self._world.crash, process.process, "exited", context=self._world.loop.world.context.copy()
        )

    async def stop(self) -> None:
        """Stop it in order."""
        assert self.process is not None, f"{self.name} does not run"
        assert self.node is not None, f"{self.name} does not run"
        await self.process.run(self.node.stop)
        self._world.crash(self.process.process, "exited")
        self.node = None

    def crash(self, *, at_step: int | None = None) -> None:
        """Kill it, as SIGKILL does: what it has written stays in the page cache.

        Args:
            at_step: not now, but at the step on its disk after so many more: in the middle of what it does there.
        """
        if at_step is None:
            self._end("killed", power=True)
        else:
            self.disk.steps_left, self.disk.on_cut = at_step, lambda: self._end("killed at the disk", power=True)

    def power_cut(self, *, at_step: int | None = None) -> None:
        """Take the power from its host: what was not synced is lost, some of it or all, and nobody hears of it.

        Args:
            at_step: as of `crash`.
        """
        if at_step is None:
            self._end("power cut", power=False)
        else:
            self.disk.steps_left, self.disk.on_cut = at_step, lambda: self._end("power cut at the disk", power=False)

    def _end(self, why: str, *, power: bool) -> None:
        if self.process is not None:
            self._world.crash(self.process.process, why, silent=not power)
            self.disk.power_off()
        self.host.up = self.host.up and power
        self.node = None

    def _wait(self, seconds: float) -> None:
        self.host.waited_s += seconds

    def freeze(self) -> None:
        """Stop its process, as SIGSTOP does."""
        if self.process is not None:
            self.process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.thaw()


class World:
    """Everything there is, and its time.

    Args:
        seed: of all that is drawn.
        steps_max, virtual_s_max: a workload that takes more callbacks or virtual time is `Stuck`.
        strict: whether a mistake of the code under test (`Mistakes`) fails a workload that has ended well.

    Attributes:
        loop: the event loop; `loop.problems` are the mistakes so far.
        network: where connections are cut and hosts silenced; `network.weather` is what it is like.
        trace: all events.
    """

    _worlds = 0
    _last: SimLoop | None = None

    def __init__(
        self,
        seed: object = 0,
        *,
        steps_max: int = STEPS_MAX,
        virtual_s_max: float = VIRTUAL_S_MAX,
        strict: bool = True,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(seed, steps_max=steps_max, virtual_s_max=virtual_s_max)
        self.network = Network(self.loop, Random(f"{seed}/network"))  # noqa: S311 - a simulation can be run again
        self.loop.attach(self.network, Threads(self.loop))
        self._strict = strict

    @property
    def trace(self) -> Trace:
        """What happened."""
        return self.loop.trace

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.loop.time()

    def chance(self, purpose: str) -> Random:
        """Random numbers of the seed, a stream for each purpose, so that one more draw here changes nothing there."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - a simulation can be run again

    def host(self, name: str) -> Host:
        """A host, made when it is not there."""
        return self.loop.host(name)

    def node(self, name: str, properties: Mapping[str, str] | None = None) -> SimNode:
        """A broker on a host of its own, with an empty disk; not started.

        Args:
            name: the host's.
            properties: settings by Kafka's names, beyond a listener at `name:9092`.
        """
        return SimNode(self, name, properties or {})

    def process(self, name: str) -> SimProcess:
        """A new process on the host of this name, for clients and services."""
        return SimProcess(self, self.loop.new_process(name))

    def crash(self, process: Process, why: str = "killed", *, silent: bool = False) -> None:
        """End a process at once; nothing of it ever runs again.

        Args:
            silent: its host lost power: nobody hears of it.
        """
        if not process.dead:
            self.loop.crash(process, why)
            self.network.process_ended(process, silent=silent)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def run(self, workload: Callable[["World"], Awaitable[R]]) -> R:
        """Run a workload to its end, and the world with it. A world runs once.

        Raises:
            Stuck: nothing happens any more, or it takes without end.
            Mistakes: the code under test made some.
            Whatever the workload raises.
        """
        World._worlds += 1
        if World._last is not None:
            World._last.bury()
        World._last = self.loop
        log, logger = _Log(self), logging.getLogger("busway")
        collecting = gc.isenabled()
        gc.disable()
        logger.addHandler(log)
        propagate, logger.propagate = logger.propagate, False
        try:
            outcome = self.loop.world.context.copy().run(self._run, workload)
            if self._strict and self.loop.problems:
                raise Mistakes("\n\n".join(self.loop.problems))
            return outcome
        finally:
            logger.propagate = propagate
            logger.removeHandler(log)
            self.loop.end()
            if collecting:
                gc.enable()
            if World._worlds % _COLLECTED_EVERY == 0:
                gc.collect()

    def _run(self, workload: Callable[["World"], Awaitable[R]]) -> R:
        async def main() -> R:
            return await workload(self)

        return self.loop.run_until_complete(main())


@atexit.register
def _bury_the_last() -> None:
    """The interpreter would let go of its tasks one by one, and tell of each whose `finally` block finds no loop."""
    if World._last is not None:
        World._last.bury()
