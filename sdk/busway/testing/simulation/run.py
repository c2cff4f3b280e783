"""One history: a service, its broker and registry in a simulated world, from a seed.

Here: starting them, injecting faults, healing, checking properties.
Not here: drawing faults (`faults`), many histories, shrinking (`simulation`).

Two phases. Trouble: the workload sends while faults happen. Quiet: all faults end, and within `REST_S`
the service must have handled and committed all records.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from busway.admin.admin import Admin
from busway.admin.missing import create_missing
from busway.admin.new_topic import NewTopic
from busway.app.application import Application
from busway.app.declaring.declared_topics import create_declared, read_only_topics
from busway.app.model.retry import HandlerFailed
from busway.errors import BuswayError
from busway.security.options import PLAINTEXT
from busway.testing.simulation.brokers import Brokers
from busway.testing.simulation.bus import WHO, SimulatedBus
from busway.testing.simulation.environment import NotSimulated, simulated_environment
from busway.testing.simulation.faults import Fault, Kind, Seed, draw
from busway.testing.simulation.service import Service
from busway.testing.simulation.trace import CrashInjector, Trace
from busway.types import TopicPartition

if TYPE_CHECKING:
    from busway_bus.testing.world import SimProcess, World

REGISTRY: Final = "registry"
REGISTRY_PORT: Final = 8081
REST_S: Final = 300.0
"""Limit after the last fault for handling everything; a lost member's session takes 45 s of it."""
QUIET_S: Final = 0.5
"""Interval of checking that."""
AGAIN_S: Final = 1.0
"""A supervisor's delay before it restarts an instance that ended."""
LOOK_S: Final = 2.0
"""Interval of checking invariants."""
_END: Final = -1

Work = Callable[[SimulatedBus], Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A simulation's parts that no seed changes; `outcomes` hold at the end, `invariants` always."""

    service: Service
    instances: int
    nodes: int
    workload: Work
    outcomes: Sequence[Work]
    invariants: Sequence[Work]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The result of one seed.

    Attributes:
        problem: the property that did not hold; None if all held.
        digest: of all events; equal histories have equal digests.
    """

    faults: tuple[Fault, ...]
    problem: str | None
    trace: str
    digest: str


class _DoesNotHold(Exception):
    """A property does not hold."""


def run(plan: Plan, seed: Seed) -> History:
    """Run one history; `NotSimulated` if the service does something that is not simulated."""
    from busway_bus.testing.world import Stuck, World

    world = World(seed.number, strict=False)
    faults = seed.choose(draw(world.chance("faults"), plan.instances, plan.nodes))
    trace = Trace(lambda: world.now)
    problem: str | None = None
    history = _History(plan, faults, world, trace)
    with simulated_environment(seed.number, history.fails):
        try:
            world.run(history.live)
        except _DoesNotHold as failed:
            problem = str(failed)
        except Stuck as stuck:
            problem = f"the service makes no progress: {stuck}"
        outcome = History(faults=faults, problem=problem, trace=trace.text(), digest=world.trace.digest)
        _bury(world)
    return outcome


def _bury(world: "World") -> None:
    """Drop unfinished tasks; logging is off, as their `finally` blocks would log."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        world.loop.bury()
    finally:
        logging.disable(before)


class _History:
    def __init__(self, plan: Plan, faults: Sequence[Fault], world: "World", trace: Trace) -> None:
        self._plan = plan
        self._faults = faults
        self._world = world
        self._trace = trace
        self._broken: asyncio.Future[None] | None = None

    async def live(self, world: "World") -> None:
        self._broken = asyncio.get_running_loop().create_future()
        self._brokers = Brokers(world, self._trace, self._plan.nodes)
        await self._brokers.start()
        url = await self._start_registry()
        app = self._plan.service.app
        self._client = world.process(WHO)
        before = app.bootstrap_servers, app.schema_registry, app.security
        app.bootstrap_servers, app.schema_registry, app.security = self._brokers.bootstrap_servers, url, PLAINTEXT
        try:
            self._bus = SimulatedBus(app, self._brokers.bootstrap_servers, world.chance("workload"), self._trace)
            if theirs := read_only_topics(app):
                await self._client.run(create_missing, app, [NewTopic(name) for name in theirs])
            await self._client.run(create_declared, app)
        finally:
            app.bootstrap_servers, app.schema_registry, app.security = before
        self._instances = [_Instance(number, self, url) for number in range(1, self._plan.instances + 1)]
        for instance in self._instances:
            instance.start()
        await self._until(self._inject_faults())
        await self._until(self._heal())
        await self._until(self._client.run(self._rest))
        for work in (*self._plan.invariants, *self._plan.outcomes):
            await self._until(self._client.run(self._look, work))
        for instance in self._instances:
            await instance.stop()

    async def _until(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        broken = self._broken
        assert broken is not None
        await asyncio.wait([task, broken], return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            task.cancel()
            broken.result()
        task.result()

    def fails(self, problem: Exception) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(problem)

    @property
    def world(self) -> "World":
        return self._world

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def service(self) -> Service:
        return self._plan.service

    @property
    def brokers(self) -> Brokers:
        return self._brokers

    async def _start_registry(self) -> str | None:
        if all(
            topic.format != "avro" and topic.key_format != "avro" for topic in self._plan.service.app.topics.values()
        ):
            return None
        from busway_registry.config import RegistryConfig
        from busway_registry.server import RegistryServer

        process = self._world.process(REGISTRY)
        config = RegistryConfig(host=REGISTRY, port=REGISTRY_PORT, database="memory:", insecure=True)
        self._registry = RegistryServer(config, machine=process.process.machine)
        await process.run(self._registry.start)
        return f"http://{REGISTRY}:{REGISTRY_PORT}"

    # Trouble

    async def _inject_faults(self) -> None:
        began_s = self._world.now
        looking = asyncio.ensure_future(self._look_always())
        faults = [asyncio.ensure_future(self._apply_fault(fault, began_s)) for fault in self._faults]
        try:
            work = asyncio.ensure_future(self._client.run(self._work))
            await asyncio.gather(work, *faults)
        finally:
            looking.cancel()

    async def _work(self) -> None:
        try:
            outcome = self._plan.workload(self._bus)
            if inspect.isawaitable(outcome):
                await outcome
        except BuswayError as problem:
            if isinstance(problem, NotSimulated):
                raise
            raise _DoesNotHold(f"the workload failed: {type(problem).__name__}: {problem}") from problem

    async def _look_always(self) -> None:
        while self._plan.invariants:
            await asyncio.sleep(LOOK_S)
            for work in self._plan.invariants:
                # Nothing can be read while the broker is down.
                with contextlib.suppress(BuswayError, TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._client.run(self._look, work)

    async def _look(self, work: Work) -> None:
        name = getattr(work, "__name__", repr(work))
        try:
            holds = work(self._bus)
            if inspect.isawaitable(holds):
                holds = await holds
        except AssertionError as problem:
            self._refuse(f"{name}: {problem}" if str(problem) else name)
            return
        if holds is False:
            self._refuse(name)

    def _refuse(self, what: str) -> None:
        self._trace.tell("property", f"does not hold: {what}")
        self.fails(_DoesNotHold(what))

    async def _apply_fault(self, fault: Fault, began_s: float) -> None:
        await asyncio.sleep(began_s + fault.at_s - self._world.now)
        if fault.instance:
            await self._instances[fault.instance - 1].apply_fault(fault)
        else:
            await self._brokers.apply_fault(fault)

    # Quiet

    async def _heal(self) -> None:
        self._world.network.heal()
        await self._brokers.heal()
        for instance in self._instances:
            instance.heal()
        self._trace.tell("world", "is whole again")

    async def _rest(self) -> None:
        app = self._plan.service.app
        topics = sorted({topic.name for route in app.routes for topic in route.topics})
        if not topics:
            return
        until_s = self._world.now + REST_S
        left: dict[str, int] = {}
        async with Admin(self._brokers.bootstrap_servers, client_id="observer", security=PLAINTEXT) as admin:
            while self._world.now < until_s:
                with contextlib.suppress(BuswayError):
                    left = await _left(admin, app, topics)
                    if not left:
                        await asyncio.sleep(QUIET_S)
                        if not (left := await _left(admin, app, topics)):
                            return
                await asyncio.sleep(QUIET_S)
        raise _DoesNotHold(f"{REST_S:g} s after the last fault records are not handled: {left}")


async def _left(admin: Admin, app: Application, topics: Sequence[str]) -> dict[str, int]:
    there = set(await admin.list_topics())
    described = await admin.describe_topics([topic for topic in topics if topic in there])
    partitions = [TopicPartition(name, info.number) for name, topic in described.items() for info in topic.partitions]
    ends = await admin.list_offsets(dict.fromkeys(partitions, _END))
    committed = await admin.list_group_offsets(app.group_id)
    left = {}
    for partition, end in ends.items():
        at = committed.get(partition)
        if (missing := end - (at.offset if at is not None else 0)) > 0:
            left[f"{partition.topic}-{partition.partition}"] = missing
    return left


class _Instance:
    def __init__(self, number: int, history: _History, registry_url: str | None) -> None:
        self.name = f"service-{number}"
        self._history = history
        self._registry_url = registry_url
        self._process: SimProcess | None = None
        self._app: Application | None = None
        self._kills: dict[str, int] = {}

    def _tell(self, what: str) -> None:
        self._history.trace.tell(self.name, what)

    def start(self) -> None:
        self._process = process = self._history.world.process(self.name)
        self._tell("starts")
        process.start(self._serve, process).add_done_callback(lambda done: self._ended(process, done))

    async def _serve(self, process: "SimProcess") -> None:
        self._app = app = self._history.service.make(self.name)
        app.bootstrap_servers, app.security = self._history.brokers.bootstrap_servers, PLAINTEXT
        if self._registry_url is not None:
            app.schema_registry = self._registry_url
        app.extend(CrashInjector(self._history.trace, self.name, self._kills, lambda how: self._kill(process, how)))
        async with app:
            if app.worker is not None:
                app.worker.hooks.stepped = bool(self._kills)
                await app.wait()
            else:
                await asyncio.get_running_loop().create_future()

    def _ended(self, process: "SimProcess", done: "asyncio.Future[None]") -> None:
        if done.cancelled() or process is not self._process or not process.alive:
            return
        problem = done.exception()
        process.crash()
        if isinstance(problem, BuswayError) and not isinstance(problem, HandlerFailed | NotSimulated):
            self._tell(f"ends: {problem}")
            asyncio.get_running_loop().call_later(AGAIN_S, self._start_if_down)
        elif problem is not None:
            if not isinstance(problem, NotSimulated):
                self._tell(f"ends: {problem!r}")
                problem = _DoesNotHold(f"{self.name} stopped by itself: {type(problem).__name__}: {problem}")
            self._history.fails(problem)

    def _start_if_down(self) -> None:
        if self._process is None or not self._process.alive:
            self.start()

    def _kill(self, process: "SimProcess", how: str) -> None:
        self._tell(how)
        loop = asyncio.get_running_loop()
        world = self._history.world
        context = world.loop.world.context.copy()
        loop.call_soon(process.crash, context=context)
        loop.call_later(AGAIN_S, self._start_if_down, context=context)

    async def apply_fault(self, fault: Fault) -> None:
        process = self._process
        if process is None or not process.alive:
            return
        lasts = f" for {fault.lasts_s:.1f} s"
        match fault.kind:
            case Kind.KILL:
                self._tell(f"is killed{lasts}")
                process.crash()
                await asyncio.sleep(fault.lasts_s)
                self._start_if_down()
            case Kind.KILL_AT:
                self._kills[fault.point] = fault.step
                if self._app is not None and self._app.worker is not None:
                    self._app.worker.hooks.stepped = True
            case Kind.FREEZE:
                self._tell(f"freezes{lasts}")
                process.freeze()
                await asyncio.sleep(fault.lasts_s)
                process.thaw()
                if process.alive:
                    self._tell("resumes")
            case Kind.CUT:
                self._tell("loses its connections")
                self._history.world.network.cut(self.name)
            case Kind.SILENCE:
                self._tell(f"cannot reach the broker{lasts}")
                network = self._history.world.network
                names = self._history.brokers.names
                pairs = [pair for name in names for pair in ((self.name, name), (name, self.name))]
                for pair in pairs:
                    network.silence(*pair)
                await asyncio.sleep(fault.lasts_s)
                for pair in pairs:
                    network.heal(*pair)
                self._tell("can reach it again")
            case _:
                self._tell("is restarted in order")
                await self.stop()
                self._start_if_down()

    async def stop(self) -> None:
        process, app = self._process, self._app
        if process is None or app is None or not process.alive:
            return
        try:
            async with asyncio.timeout(60):
                await process.run(app.stop)
        except (BuswayError, TimeoutError) as problem:
            self._tell(f"does not end in order: {problem!r}")
        except Exception as problem:  # noqa: BLE001 - killed meanwhile
            self._tell(f"ends: {type(problem).__name__}")
        self._process = None
        process.crash()

    def heal(self) -> None:
        self._kills.clear()
        if self._process is not None and self._process.alive:
            self._process.thaw()
        else:
            self.start()
