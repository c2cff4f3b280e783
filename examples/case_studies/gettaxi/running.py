"""A running GetTaxi: its parts, its load, its audit.

Here: starting them, which can be killed and what is noted of it, the state for the page.
Not here: when the load ends, the terminal (`demo`).
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Any, Final

from kit.command import beside
from kit.faults import KillsInTurn, Victim
from kit.kills import NODE_AWAY_S, Kills, Target
from kit.monitor import Monitor
from kit.parts import Part, Parts

from busway import RecordMetadata
from busway.types import TopicPartition
from gettaxi.audit import POSITIONS, Audit
from gettaxi.auditing import Auditing
from gettaxi.generate import Devices, Event
from gettaxi.service import PARTITIONS
from gettaxi.traffic import Plan, Traffic

RATE_S: Final = 2.0
"""The window of the records per second."""
LEADER: Final = "leader"
CONTROLLER: Final = "controller"
_POLL_S: Final = 0.02
_STEPS_AFTER: Final = 2
"""The second step that is acknowledged after a kill was sent after it."""


class Running:
    """All parts together.

    Attributes:
        turns: kills of `--ci`.
        kills: kills on request.
        acknowledged: records.
        changed: called when the state changes.
    """

    def __init__(self, parts: Parts, service: Part, plans: Sequence[Plan], *, nodes: int) -> None:
        self.parts = parts
        self.service = service
        self.url = ""
        self.audit = Audit()
        self.acknowledged = 0
        self.devices = Devices(
            [Traffic(plan) for plan in plans],
            bootstrap_servers=parts.bootstrap_servers,
            schema_registry=parts.schema_registry,
            acknowledged=self._acknowledged,
        )
        self.auditing: Auditing
        self.changed: Callable[[], None] = lambda: None
        groups = ("gettaxi", self.devices.app.name)
        self.monitor = Monitor(parts.bootstrap_servers, groups, nodes=nodes, changed=self._changed)
        self.kills = Kills(changed=self._changed)
        self._steps: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=1000)
        """When steps were acknowledged, and how many records were by then."""
        self._partition_of: dict[str, int] = {}
        self._step_done = asyncio.Event()
        self.kills.add(Target("service", service, after=self._after_service))
        self.kills.add(Target("registry", parts.registry, after=self._meanwhile))
        victims: list[Victim] = [self.kills.targets["service"], self.kills.targets["registry"]]
        if nodes == 1:
            self.kills.add(Target("bus", parts.bus, after=self._after_bus))
            victims.append(self.kills.targets["bus"])
        else:
            for number, node in enumerate(parts.nodes, 1):
                self.kills.add(Target(node.name, node, NODE_AWAY_S, self._after_node(number)))
            self.kills.aliases = {LEADER: self._leader, CONTROLLER: self._controller}
            victims.append(_Leader(self))
        self.turns = KillsInTurn(victims)

    @classmethod
    async def start(cls, parts: Parts, plans: Sequence[Plan], *, nodes: int) -> "Running":
        """Start bus, registry and service.

        Raises:
            DemoFailed: one did not start.
        """
        await (parts.start_bus() if nodes == 1 else parts.start_nodes(nodes))
        service = await parts.start_app("service", "gettaxi.service:app")
        url = (await service.line()).removeprefix("gettaxi ")
        running = cls(parts, service, plans, nodes=nodes)
        running.url = url
        return running

    async def connected(self, work: Coroutine[Any, Any, None], *, watched: bool) -> None:
        """Run work while devices are connected and the audit reads.

        Args:
            work: such as driving.
            watched: the state of the bus is read, too.

        Raises:
            DemoFailed: a part did not start again.
        """
        async with self.devices.running():
            self.auditing = Auditing(
                self.audit, self.devices.app, self.parts.bootstrap_servers, partitions=PARTITIONS, group="gettaxi"
            )
            watching = [self.monitor.run()] if watched else []
            await beside(work, self.auditing.run(), self._watch(), *watching)

    async def drive(self, *, speed: float, until: Callable[[], bool]) -> None:
        """Step after step until it is so.

        Raises:
            DemoFailed: the service ended by itself.
        """

        def stop() -> bool:
            self._steps.append((time.monotonic(), self.acknowledged))
            self._step_done.set()
            self._step_done = asyncio.Event()
            self.service.check()
            return until()

        await self.devices.run(speed=speed, until=stop)

    async def _watch(self) -> None:
        await asyncio.shield(self.kills.problem)

    def _acknowledged(self, event: Event, place: RecordMetadata) -> None:
        self.acknowledged += 1
        self._partition_of[event.city] = place.partition
        self.audit.acknowledged(event, place.topic, place.partition, place.offset)

    def _changed(self) -> None:
        self.changed()

    def per_s(self) -> float:
        """Acknowledged records per second."""
        now = time.monotonic()
        at, count = next(
            ((at, count) for at, count in self._steps if at >= now - RATE_S), (now - RATE_S, self.acknowledged)
        )
        return (self.acknowledged - count) / max(now - at, 0.5)

    # What is noted of a kill

    async def _pause(self, begun: float) -> float:
        """Return the longest time without an acknowledgement around a kill."""
        while sum(at > begun for at, _ in self._steps) < _STEPS_AFTER:
            await self._step_done.wait()
        times = [at for at, _ in self._steps]
        first = next(number for number, at in enumerate(times) if at > begun)
        around = times[max(first - 1, 0) : first + _STEPS_AFTER]
        return max(later - earlier for earlier, later in itertools.pairwise(around))

    async def _after_bus(self, begun: float) -> str | None:
        return f"nothing was acknowledged for {await self._pause(begun):.1f} s, then the load went on"

    async def _meanwhile(self, begun: float) -> str | None:
        before = self.acknowledged
        await self._back("registry")
        return f"meanwhile {self.acknowledged - before:,} records were acknowledged"

    async def _after_service(self, begun: float) -> str | None:
        before = self.acknowledged
        await self._back("service")
        rows = self.audit.rows
        while self.audit.rows == rows:
            await self.auditing.progress()
        seconds = time.monotonic() - begun
        return f"the service handles again after {seconds:.1f} s; meanwhile {self.acknowledged - before:,} records came"

    async def _back(self, name: str) -> None:
        part = self.kills.targets[name].part
        while part.restarting:  # noqa: ASYNC110 - beside the kill, which waits for this
            await asyncio.sleep(_POLL_S)

    def _after_node(self, number: int) -> Callable[[float], Any]:
        async def after(begun: float) -> str | None:
            led = [place for place, leader in self.monitor.state.leaders.items() if leader == number]
            controller = any(node.node == number and node.controller for node in self.monitor.state.nodes)
            seconds = await self.monitor.failover_s(number, led, begun)
            if seconds is None:
                return None
            what = f"{len(led)} partitions" + (" and the controller" if controller else "")
            pause = await self._pause(begun)
            return f"others lead node-{number}'s {what} after {seconds:.2f} s; the longest wait for an acknowledgement was {pause:.1f} s"

        return after

    # Who leads

    def _leader(self) -> str:
        """The node that leads the positions of the first city."""
        city = next(iter(self.devices.traffic))
        leader = self.monitor.state.leaders.get(TopicPartition(POSITIONS, self._partition_of.get(city, 0)))
        return self._running_node(leader)

    def _controller(self) -> str:
        return self._running_node(next((node.node for node in self.monitor.state.nodes if node.controller), None))

    def _running_node(self, number: int | None) -> str:
        """The node, or a running one if that is away."""
        names = [node.name for node in self.parts.nodes if not node.restarting]
        return f"node-{number}" if f"node-{number}" in names or not names else names[0]

    # What is shown

    def killed(self) -> str:
        """What was killed and how often, in words."""
        return ", ".join(f"{name} {count} times" if count > 1 else name for name, count in self.kills.counts.items())

    def state(self) -> dict[str, Any]:
        """The state for the page."""
        audit, bus = self.audit, self.monitor.state
        aliases = {name: resolve() for name, resolve in self.kills.aliases.items()}
        return {
            "load": {"acknowledged": self.acknowledged, "per_s": round(self.per_s())},
            "audit": {
                "lost": audit.lost,
                "doubled": audit.doubled,
                "wrong": audit.wrong,
                "checked": audit.checked,
                "fares": audit.fares,
                "waiting": audit.waiting,
            },
            "parts": [
                {"name": name, "away": target.part.restarting, "kills": self.kills.counts.get(name, 0)}
                for name, target in self.kills.targets.items()
            ],
            "aliases": aliases,
            "reachable": bus.reachable,
            "topics": [asdict(row) for row in bus.topics],
            "groups": [asdict(row) for row in bus.groups],
            "nodes": [asdict(row) for row in bus.nodes],
            "under_replicated": bus.under_replicated,
            "events": [asdict(event) for event in self.kills.events],
        }


class _Leader:
    """The victim of `--ci`: whichever node leads then."""

    name = LEADER

    def __init__(self, running: Running) -> None:
        self._running = running

    async def kill_and_restart(self) -> None:
        """Kill the leader, start it again."""
        self._running.kills.kill(LEADER)
        await self._running.kills.settled()
