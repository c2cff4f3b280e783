"""One run of a simulated cluster: load and faults, then safety, then liveness.

Here: the order of a run, and the checks at its end.
Not here: the plan (`plan`), what is checked while it runs (`invariants`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from busway import Admin, NewTopic
from busway_bus.log.recovery import Recovered, _Recovery
from busway_bus.log.restart import remove_records
from busway_bus.testing.world import Crashed, SimProcess, World
from tests.simulation.scenario import epochs_up_to
from tests.simulation.three_nodes import load
from tests.simulation.three_nodes.faults import ClusterFaults
from tests.simulation.three_nodes.invariants import Invariants
from tests.simulation.three_nodes.load import SOURCE, TARGET, Seen
from tests.simulation.three_nodes.nodes import COPY, TOPIC, Cluster, content_of
from tests.simulation.three_nodes.plan import ClusterPlan, draw

CONVERGED_S: Final = 60.0
"""Bound of virtual time in which everything works again once the faults are over."""
_LOOK_S: Final = 0.02
_CLIENTS: Final = {"reader": load.read, "group": load.commit, "copier": load.copy}


class NotConverged(AssertionError):
    """Something did not come right in time after the last fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened in a run.

    Attributes:
        faults: by kind.
        counts: acknowledged, copied, committed and read records, leaders, batches that were compared.
        virtual_s: virtual time of the run.
        converged_s: virtual time from the last fault until all replicas were in sync.
    """

    faults: Counter[str]
    counts: Counter[str]
    virtual_s: float
    converged_s: float
    digest: str


def run_plan(plan: ClusterPlan, world: World | None = None) -> Outcome:
    """Run a plan in a new world; raise what is wrong."""
    world = world or World(plan.seed)
    with epochs_up_to(plan.epoch_max), _offsets_from(plan.first_offset):
        return world.run(lambda world: _Run(world, plan).play())


@contextlib.contextmanager
def _offsets_from(first_offset: int) -> Iterator[None]:
    """Let new logs of the topics begin at an offset."""
    usual = _Recovery.run

    def run(self: _Recovery, flushed: int) -> Recovered:
        names = self._files.list(self._directory)
        if self._directory.rpartition("-")[0] in {TOPIC, COPY} and not any(name.endswith(".log") for name in names):
            remove_records(self._files, self._directory, first_offset)
        return usual(self, flushed)

    if first_offset:
        _Recovery.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        _Recovery.run = usual  # type: ignore[method-assign]


def run_seed(seed: int) -> Outcome:
    return run_plan(draw(seed))


class _Run:
    def __init__(self, world: World, plan: ClusterPlan) -> None:
        self._world, self._plan = world, plan
        world.network.conditions.delay_s = (0.00005, plan.delays.get("network_ms", 1.0) / 1000)
        self._cluster = Cluster(world, plan)
        self._invariants = Invariants(self._cluster)
        self._faults = ClusterFaults(self._cluster, self._kill_client)
        self._client = world.process("client")
        self._seen = Seen(
            world=world, servers=self._cluster.addresses, partitions=plan.partitions, options=dict(plan.client)
        )
        self._topics = [TOPIC, COPY] if "copier" in plan.load else [TOPIC]
        self._watching: list[asyncio.Task[None]] = []
        self._clients: set[asyncio.Future[None]] = set()
        self._processes: dict[str, SimProcess] = {}
        self._failed: asyncio.Future[None] = world.loop.create_future()

    async def play(self) -> Outcome:
        """All of it, or up to the first violation."""
        self._watching = [asyncio.ensure_future(self._cluster.keep(node)) for node in self._cluster.nodes]
        self._watching.append(asyncio.ensure_future(self._invariants.watch(0.05)))
        playing = asyncio.ensure_future(self._play())
        for task in self._watching:
            task.add_done_callback(self._ended)
        await asyncio.wait([playing, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            playing.cancel()
            self._failed.result()
        return playing.result()

    def _ended(self, work: "asyncio.Future[None]") -> None:
        """Fail the run with the error of a client or a check."""
        problem = None if work.cancelled() else work.exception()
        if problem is not None and not isinstance(problem, Crashed) and not self._failed.done():
            self._failed.set_exception(problem)

    async def _play(self) -> Outcome:
        await self._until("a majority of the voters run", self._cluster.hasten_first_election)
        await self._until("the cluster has started", lambda: self._cluster.in_sync([]))
        await self._client.run(self._create_topics)
        await self._until("topics are created", lambda: self._cluster.in_sync(self._topics))
        self._start_clients()
        await self._faults.run()
        await self._faults.heal()
        self._seen.calm.set()
        healed_s = self._world.now
        await self._until("all replicas are in sync", self._in_sync)
        converged_s = self._world.now - healed_s
        before = {index: len(records) for index, records in self._seen.acknowledged.items()}
        await self._until(
            "each partition takes records",
            lambda: all(len(records) > before[index] for index, records in self._seen.acknowledged.items()),
        )
        final = await self._final_records()
        self._seen.over.set()
        await self._until("the clients end", lambda: all(client.done() for client in self._clients))
        await self._until("replicas have the same end", self._ends_agree)
        self._invariants.look()
        self._check_records(final)
        self._check_replicas()
        return self._outcome(converged_s, final)

    async def _create_topics(self) -> None:
        configs = dict(self._plan.topic)
        topics = [NewTopic(TOPIC, self._plan.partitions, 3, configs)]
        if COPY in self._topics:
            topics.append(NewTopic(COPY, 1, 3, configs))
        async with Admin(self._cluster.addresses) as admin:
            await admin.create_topics(topics)

    def _start_clients(self) -> None:
        seen, client = self._seen, self._client
        for index in range(self._plan.partitions):
            self._run_client(client.start(load.write, seen, index))
        for kind in self._plan.load[1:]:
            self._start_client(kind)

    def _start_client(self, kind: str) -> None:
        process = self._processes[kind] = self._world.process(kind)
        self._run_client(process.start(_CLIENTS[kind], self._seen))

    def _run_client(self, work: "asyncio.Future[None]") -> None:
        self._clients.add(work)
        work.add_done_callback(self._ended)

    def _kill_client(self, kind: str) -> None:
        self._processes[kind].crash()
        self._start_client(kind)

    # Liveness

    async def _in_time(self, what: str, work: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(CONVERGED_S):
                await work
        except TimeoutError:
            refused = [f"{name}: {problem!r}" for name, problem in self._cluster.refused.items()]
            raise NotConverged(
                f"{what}: not within {CONVERGED_S:.0f} s; refused: {refused}\n{self._world.loop.stacks()}"
            ) from None

    async def _until(self, what: str, holds: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not holds():
                await self._world.sleep(_LOOK_S)

        await self._in_time(what, wait())

    def _in_sync(self) -> bool:
        """Whether all replicas are open and in sync; a node that has just started has an old image."""
        return self._cluster.in_sync(self._topics) and all(len(replicas) == 3 for replicas in self._replicas())

    def _ends_agree(self) -> bool:
        return all(
            len(replicas) == 3 and len({(replica.log.end_offset, replica.high_watermark) for replica in replicas}) == 1
            for replicas in self._replicas()
        )

    def _replicas(self) -> Iterator[list]:
        for topic in self._topics:
            for index in range(self._plan.partitions if topic == TOPIC else 1):
                yield list(self._cluster.replicas(topic, index).values())

    # Safety

    async def _final_records(self) -> dict[int, list[tuple[int, bytes]]]:
        """Read what there is in the end; wait until the clients have handled it."""
        final: dict[int, list[tuple[int, bytes]]] = {}

        async def read() -> None:
            for place in self._seen.places:
                final[place.partition] = await self._client.run(load.read_all, self._seen.servers, place)

        await self._in_time("the records are read", read())
        if "reader" in self._plan.load:
            await self._until(
                "the reader has read all",
                lambda: all(
                    self._seen.read.get(index, [(-1, b"")])[-1][0] >= records[-1][0] for index, records in final.items()
                ),
            )
        if "group" in self._plan.load:
            await self._until(
                "the group has committed all",
                lambda: all(self._seen.committed.get(index, 0) > records[-1][0] for index, records in final.items()),
            )
        if "copier" in self._plan.load:
            end = final[SOURCE.partition][-1][0] + 1
            await self._until("the copier has committed all", lambda: self._seen.copied >= end)
            await self._in_time("all is copied", self._copied(final[SOURCE.partition]))
        return final

    async def _copied(self, source: list[tuple[int, bytes]]) -> None:
        values = [value for _, value in source]
        while True:
            copied = [value for _, value in await self._client.run(load.read_all, self._seen.servers, TARGET)]
            if len(copied) >= len(values):
                assert copied[: len(values)] == values, "the copy is not exactly once"
                return
            assert copied == values[: len(copied)], "the copy is not exactly once"
            await self._world.sleep(1)

    def _check_records(self, final: dict[int, list[tuple[int, bytes]]]) -> None:
        for index, records in final.items():
            there = dict(records)
            end = records[-1][0] + 1
            for what, seen in (("acknowledged", self._seen.acknowledged), ("read", self._seen.read)):
                lost = [(o, value) for o, value in seen.get(index, ()) if o < end and there.get(o) != value]
                assert not lost, f"partition {index}: {what}, and not there: {lost[:5]} of {len(seen[index])}"
            values = [value for _, value in records]
            assert len(set(values)) == len(values), f"partition {index} has records twice"
            numbers = [int(value.split(b":")[1]) for value in values]
            assert numbers == sorted(numbers), f"partition {index} is out of order"
            if index in self._seen.read:
                offsets = [offset for offset, _ in self._seen.read[index]]
                assert offsets == sorted(set(offsets)), f"partition {index}: offsets are read twice"

    def _check_replicas(self) -> None:
        for replicas in self._replicas():
            assert len(replicas) == 3, f"{len(replicas)} of 3 replicas are there"
            contents = {
                content_of(replica.log, replica.log.start_offset, replica.log.end_offset) for replica in replicas
            }
            assert len(contents) == 1, f"the replicas of {replicas[0].topic}-{replicas[0].index} differ"

    def _outcome(self, converged_s: float, final: dict[int, list[tuple[int, bytes]]]) -> Outcome:
        counts = Counter[str]()
        counts["acknowledged"] = sum(map(len, self._seen.acknowledged.values()))
        counts["records"] = sum(map(len, final.values()))
        counts["read while running"] = sum(map(len, self._seen.read.values()))
        counts["partitions with committed offsets"] = len(self._seen.committed)
        counts["leaders of partitions"] = len(self._invariants.leaders)
        counts["committed batches"] = sum(map(len, self._invariants.committed.values()))
        counts["starts"] = self._cluster.starts
        counts["steps"] = self._world.loop.steps
        counts.update({f"load {kind}": 1 for kind in self._plan.load})
        counts[f"{len(self._plan.roles)} nodes"] += 1
        return Outcome(
            faults=self._faults.made,
            counts=counts,
            virtual_s=self._world.now,
            converged_s=converged_s,
            digest=self._world.trace.digest[:12],
        )
