"""A simulated world: nodes and clients, deterministic loop, network and disks.

Here: making nodes and processes, running a workload, faults: crash, power cut, freeze, cut connections.
Not here: the choice of faults and the checks.

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

The same seed gives the same history; `World.trace` has a line for each event. A workload runs in the process `world`,
which is never crashed. Client code belongs into `Process.run` or `Process.start`, so that it can be crashed and frozen.
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

__all__ = ["Crashed", "SimNode", "SimProcess", "SimulationErrors", "Stuck", "World"]

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
"""Worlds between two garbage collections; a running world has none, for speed."""
_LOG_LINES_MAX: Final = 10_000


class SimulationErrors(AssertionError):
    """Unhandled exceptions or logged tracebacks of the code under test."""


class _Log(logging.Handler):
    """Traces log lines of the code under test."""

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
    """A process for clients, services, or other asyncio code.

    Attributes:
        process: its machine and state.
    """

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self.process = process

    @property
    def name(self) -> str:
        """The host's name, numbered from the second process on."""
        return self.process.name

    @property
    def alive(self) -> bool:
        return not self.process.dead

    def start(
        self, work: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[R]":
        """Start `work` in this process. Its future fails with `Crashed` on a crash."""
        outcome: asyncio.Future[R] = self._world.loop.create_future()
        if self.process.dead:
            outcome.set_exception(Crashed(f"{self.name} is not running"))
            return outcome
        self.process.waiting[outcome] = None
        task = self._world.loop.create_task(work(*args, **kwargs), context=self.process.context.copy())
        task.add_done_callback(lambda done: self._pass_outcome(done, outcome), context=self.process.context.copy())
        # In the context of the world's process, which outlives this one.
        outcome.add_done_callback(lambda _: self._over(task, outcome), context=self._world.loop.world.context.copy())
        return outcome

    def _pass_outcome(self, task: "asyncio.Task[R]", outcome: "asyncio.Future[R]") -> None:
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
        """Run `work` in this process. Crashed: it was crashed before the end."""
        return await self.start(work, *args, **kwargs)

    def crash(self) -> None:
        """Kill it, as SIGKILL does; its writes stay in the page cache."""
        self._world.crash(self.process)

    def freeze(self) -> None:
        self._world.loop.freeze(self.process)

    def thaw(self) -> None:
        self._world.loop.thaw(self.process)

    def jump(self, seconds: float) -> None:
        """Move its host's wall clock, not the monotonic one."""
        self.process.host.wall_offset_ms += int(seconds * 1000)
        self._world.loop.tell(self.process, f"wall clock jumps by {seconds:g} s")

    @contextlib.contextmanager
    def inside(self) -> Generator[None, None, None]:
        """Run the block as code of this process, without waits."""
        token = PROCESS.set(self.process)
        try:
            yield
        finally:
            PROCESS.reset(token)


class SimNode:
    """A simulated broker.

    Attributes:
        disk: survives crashes; set its faults there.
        node: None unless running.
        exited: done when its process ends by itself; new after each `start`.
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
        return f"{self.name}:{PORT}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    async def start(self) -> None:
        """Start it in a new process, on the current disk.

        Raises a node's errors, and Crashed.
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
        return Node(config, machine=machine, files=self._open)

    def _open(self, _: str) -> SimFiles:
        process = PROCESS.get()
        if self._holder is not None and not self._holder.dead and self._holder is not process:
            raise DirectoryInUse(f"the data directory of {self.name} is in use by {self._holder.name}")
        self._holder = process
        return self.disk

    async def _until_failed(self, node: Node, process: SimProcess) -> None:
        """Do as `busway_bus.run.serve`."""
        await node.failed.wait()
        await node.stop()
        self._world.loop.call_soon(
            self._world.crash, process.process, "exited", context=self._world.loop.world.context.copy()
        )

    async def stop(self) -> None:
        assert self.process is not None, f"{self.name} does not run"
        assert self.node is not None, f"{self.name} does not run"
        await self.process.run(self.node.stop)
        self._world.crash(self.process.process, "exited")
        self.node = None

    def crash(self, *, at_step: int | None = None) -> None:
        """Kill it, as SIGKILL does: its writes stay in the page cache.

        `at_step`: at the disk step after this many more, within an operation.
        """
        if at_step is None:
            self._end("killed", power=True)
        else:
            self.disk.steps_left, self.disk.on_cut = at_step, lambda: self._end("killed at the disk", power=True)

    def power_cut(self, *, at_step: int | None = None) -> None:
        """Cut its host's power; `at_step` as of `crash`.

        Unsynced data is lost, partly or whole; peers get no notice.
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
        if self.process is not None:
            self.process.freeze()

    def thaw(self) -> None:
        if self.process is not None:
            self.process.thaw()


class World:
    """A simulated world with its time.

    Args:
        seed: of all random numbers.
        steps_max, virtual_s_max: a workload with more callbacks or virtual time is `Stuck`.
        strict: whether `SimulationErrors` of the code under test fail a workload that succeeded.

    Attributes:
        loop: the event loop; `loop.problems` are the mistakes so far.
        network: for cuts and silences; `network.conditions` has its delays and limits.
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
        return self.loop.trace

    @property
    def now(self) -> float:
        return self.loop.time()

    def chance(self, purpose: str) -> Random:
        """Return the seed's random numbers for a purpose, independent of all others."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - a simulation can be run again

    def host(self, name: str) -> Host:
        return self.loop.host(name)

    def node(self, name: str, properties: Mapping[str, str] | None = None) -> SimNode:
        """Make a broker on a new host with empty disk, at `name:9092`.

        `properties`: further settings by Kafka's names.
        """
        return SimNode(self, name, properties or {})

    def process(self, name: str) -> SimProcess:
        return SimProcess(self, self.loop.new_process(name))

    def crash(self, process: Process, why: str = "killed", *, silent: bool = False) -> None:
        """End a process at once; its code never runs again.

        `silent`: peers get no notice.
        """
        if not process.dead:
            self.loop.crash(process, why)
            self.network.process_ended(process, silent=silent)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def run(self, workload: Callable[["World"], Awaitable[R]]) -> R:
        """Run a workload to its end. A world runs once.

        Raises the workload's errors; Stuck without further events or beyond a limit; SimulationErrors.
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
                raise SimulationErrors("\n\n".join(self.loop.problems))
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
def _close_last_tasks() -> None:
    """Close its tasks: at exit their `finally` blocks would have no loop."""
    if World._last is not None:
        World._last.bury()
