"""A run of three brokers under a seed: clients, faults, then none.

Here: themes, the faults, `run`.
Not here: the brokers (`replica_cluster` of the unit tests), the rules (`rules`), the clients (`clients`).
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from busway_bus.controller.elections import PREFERRED, ElectLeaders
from busway_bus.testing.world import World
from tests.simulation.replicas.clients import Clients
from tests.simulation.replicas.rules import Rules, Violation
from tests.unit.busway_bus.replication.replica_cluster import ReplicaCluster

PARTITIONS: Final = 2
CONVERGED_S: Final = 120.0
"""Bound of virtual time in which all replicas are in sync once the faults are over."""
STEPS_MAX: Final = 1_500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """What the runs of a theme have in common.

    Attributes:
        kinds: faults, the more often named the more frequent.
        faults: number of them.
        pause_s: mean time between two.
        writers: clients' methods, one task each.
        durability: of the topic. Other than `flush`, only one broker at a time may lose records.
        lag_ms: replica.lag.time.max.ms.
        controller_delay_s: means of the way to the controller.
        syncs_s: durations of a sync at the beginning.
        feeds_s: mean times in which a broker reads a change of the metadata.
        slowness: of work in threads.
        delayed, lost_responses: see `ReplicaCluster`.
    """

    kinds: tuple[str, ...]
    faults: int = 10
    pause_s: float = 0.3
    writers: tuple[str, ...] = ("write", "write_once")
    durability: str = "flush"
    lag_ms: int = 3_000
    controller_delay_s: tuple[float, ...] = (0.001,)
    syncs_s: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.01, 0.05))
    feeds_s: tuple[float, ...] = (0.02,)
    slowness: tuple[float, ...] = (1.0,)
    delayed: float = 0.0
    lost_responses: float = 0.0


THEMES: Final[Mapping[str, Theme]] = {
    "": Theme(
        kinds=("kill", "power", "leader", "cut", "slow", "heal", "all"),
        faults=20,
        pause_s=0.5,
        writers=("write", "write_once", "transact"),
    ),
    "elections": Theme(kinds=("leader", "leader", "kill", "fence", "cut", "heal", "all"), faults=8),
    "epochs": Theme(
        kinds=("fence", "elect", "elect", "cut", "heal", "kill"),
        faults=16,
        pause_s=0.1,
        writers=("write_once", "write_once", "write_once", "transact"),
        feeds_s=(0.001, 0.02, 0.3),
        slowness=(1.0, 100.0),
        delayed=0.03,
        lost_responses=0.1,
    ),
    "isrs": Theme(
        kinds=("cut", "cut", "slow", "kill", "fence", "lag", "heal", "heal"),
        lag_ms=300,
        controller_delay_s=(0.001, 0.05, 0.2),
    ),
    "losses": Theme(
        kinds=("lose", "lose", "lose joining", "kill", "fence", "slow", "cut", "heal"),
        durability="os",
        lag_ms=300,
        controller_delay_s=(0.001, 0.2),
        delayed=0.03,
    ),
    "transactions": Theme(
        kinds=("leader", "kill", "fence", "cut", "heal"), faults=6, writers=("transact", "transact", "transact")
    ),
}


class Faults:
    """Faults one after the other, of which several may last at a time."""

    def __init__(self, cluster: ReplicaCluster, rules: Rules, chance: Random, theme: Theme) -> None:
        self.cluster, self.rules, self.chance, self.theme = cluster, rules, chance, theme

    async def make(self) -> None:
        for _ in range(self.theme.faults):
            await asyncio.sleep(self.chance.expovariate(1 / self.theme.pause_s))
            dead = [node_id for node_id, host in self.cluster.hosts.items() if not host.alive]
            if dead and self.chance.random() < 0.6:
                await self.cluster.restart(self.chance.choice(dead))
            else:
                await self._make(self.chance.choice(self.theme.kinds))

    async def _make(self, kind: str) -> None:
        cluster, chance = self.cluster, self.chance
        node_id = chance.choice(list(cluster.hosts))
        if kind == "leader" or chance.random() < 0.3:
            node_id = max(cluster.partition(chance.randrange(PARTITIONS)).leader, 1)
        host = cluster.hosts[node_id]
        others = [other for other in cluster.hosts if other != node_id]
        match kind:
            case "kill" | "power" | "leader" if host.alive:
                cluster.crash(node_id, power=kind == "kill")
                if chance.random() < 0.7:
                    await asyncio.sleep(chance.expovariate(5))
                    cluster.fence(node_id)
            case "all":
                for other, running in cluster.hosts.items():
                    if running.alive:
                        cluster.crash(other, power=False)
            case "fence":
                cluster.fence(node_id)
            case "lose" if host.alive and self._may_lose(node_id):
                await self._lose(node_id, chance.choice((0.001, 0.2)))
            case "lose joining":
                await self._lose_joining()
            case "elect":
                cluster.controller.decide(ElectLeaders(kind=PREFERRED, partitions=None))
            case "lag":
                await self._progress_without(node_id)
            case "cut":
                other = chance.choice(others)
                cluster.cut |= {(node_id, other), (other, node_id)} if chance.random() < 0.7 else {(node_id, other)}
            case "slow":
                host.disk.faults.sync_s = chance.choice(((0.0, 0.0), (0.01, 0.05), (0.05, 0.3)))
            case "heal":
                cluster.cut.clear()

    async def _lose(self, node_id: int, after_s: float) -> None:
        """Cut the power of a broker, or replace its disk."""
        host = self.cluster.hosts[node_id]
        self.cluster.crash(node_id, power=False)
        host.lossy = True
        if self.chance.random() < 0.5:
            host.wipe()
        await asyncio.sleep(after_s)
        await self.cluster.restart(node_id)

    async def _lose_joining(self) -> None:
        """Do that to a broker which is about to enter an ISR, if there is soon one."""
        for _ in range(100):
            for index in range(PARTITIONS):
                placed = self.cluster.partition(index)
                leading = self.cluster.partition_on(placed.leader, index) if placed.leader > 0 else None
                asked = leading.state.in_flight if leading is not None else None
                joining = [] if asked is None else [each for each in asked.isr if each not in placed.isr]
                if joining and self.cluster.hosts[joining[0]].alive and self._may_lose(joining[0]):
                    await self._lose(joining[0], 0.001)
                    return
            await asyncio.sleep(0.005)

    async def _progress_without(self, node_id: int) -> None:
        """Cut one broker off, once all are in sync: the others acknowledge records soon."""
        cluster = self.cluster
        cluster.cut.clear()
        for other, host in cluster.hosts.items():
            host.disk.faults.sync_s = (0.0, 0.0)
            if not host.alive:
                await cluster.restart(other)
        if not await self._comes(lambda: all(len(cluster.partition(index).isr) == 3 for index in range(PARTITIONS))):
            return
        others = {other for other in cluster.hosts if other != node_id}
        led = [index for index in range(PARTITIONS) if cluster.partition(index).leader in others]
        cluster.cut |= {(node_id, other) for other in others} | {(other, node_id) for other in others}
        before = dict(self.rules.ends)
        if led and not await self._comes(
            lambda: any(self.rules.ends.get(index, 0) > before.get(index, 0) + 3 for index in led)
        ):
            raise Violation("never", f"nothing is acknowledged without broker {node_id}")
        cluster.cut.clear()

    async def _comes(self, condition: Callable[[], bool]) -> bool:
        try:
            await self.cluster.until(condition, within_s=20)
        except AssertionError:
            return False
        return True

    def _may_lose(self, node_id: int) -> bool:
        """Whether no other broker still lacks what it has lost."""
        lossy = [other for other, host in self.cluster.hosts.items() if other != node_id and host.has_lost]
        for other in lossy:
            if any(other not in self.cluster.partition(index).isr for index in range(PARTITIONS)):
                return False
            self.cluster.hosts[other].has_lost = False
        self.cluster.hosts[node_id].has_lost = True
        return True


async def _run(world: World, theme: Theme) -> Clients:
    chance = world.chance("workload")
    settings = {
        "replica.fetch.max.bytes": chance.choice(("100", "1048576")),
        "replica.lag.time.max.ms": str(theme.lag_ms),
    }
    cluster = ReplicaCluster(world, 3, settings=settings)
    cluster.delay_s = chance.choice((0.001, 0.02))
    cluster.controller_delay_s = chance.choice(theme.controller_delay_s)
    rules = cluster.controller.watch = Rules(cluster, flushed=theme.durability == "flush")
    await cluster.start(PARTITIONS, durability=theme.durability)
    cluster.delayed, cluster.lost_responses = theme.delayed, theme.lost_responses
    for node_id, host in cluster.hosts.items():
        host.disk.faults.sync_s = chance.choice(theme.syncs_s)
        host.feed_delay_s = chance.choice(theme.feeds_s)
        world.host(f"n{node_id}").slowness = chance.choice(theme.slowness)
    clients = Clients(cluster, chance, PARTITIONS)
    work = [getattr(clients, kind)(writer) for writer, kind in enumerate(theme.writers)]
    running = [asyncio.ensure_future(each) for each in (*work, clients.read())]
    await Faults(cluster, rules, chance, theme).make()
    cluster.cut.clear()
    for node_id, host in cluster.hosts.items():
        host.disk.faults.sync_s = (0.0, 0.0)
        if not host.alive:
            await cluster.restart(node_id)
        elif not cluster.controller.image.is_active(node_id):
            host.heartbeat()
    await asyncio.sleep(1)
    with contextlib.suppress(AssertionError):
        await cluster.until(lambda: bool(clients.acknowledged), within_s=CONVERGED_S)
    clients.over = True
    done, pending = await asyncio.wait(running, timeout=CONVERGED_S)
    for task in done:
        task.result()
    if rules.violation is not None:
        raise rules.violation
    if pending:
        raise Violation("never", f"{len(pending)} clients wait for ever")
    try:
        await cluster.until(cluster.in_sync, within_s=CONVERGED_S)
    except AssertionError:
        raise Violation("never", f"not all replicas are in sync {CONVERGED_S} s after the last fault") from None
    clients.check()
    if rules.violation is not None:
        raise rules.violation
    if not clients.acknowledged:
        raise Violation("never", "no record was acknowledged at all")
    return clients


def run(seed: int, about: str = "") -> Clients:
    """One seed of a theme.

    Raises:
        Violation: a rule does not hold, or the replicas do not converge.
    """
    return World(seed, steps_max=STEPS_MAX).run(lambda world: _run(world, THEMES[about]))


def main() -> int:
    """Run seeds of all themes: `python -m tests.simulation.replicas.scenario FIRST COUNT [THEME]`."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failed = 0
    for about in sys.argv[3:] or THEMES:
        for seed in range(first, first + count):
            try:
                run(seed, about)
            except Exception as problem:  # printed with its seed; the other seeds run
                failed += 1
                print(f"{about or 'all'} {seed}: {type(problem).__name__}: {str(problem)[-600:]}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
