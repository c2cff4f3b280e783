"""Histories of a runtime on three brokers: writes, failovers and brokers that do not know of them.

Every acknowledged write and everything that a reader got is in the log of the last leader, once; a shard that is served
is what its broker's log says.
Here: the histories, `run`.
Not here: how many are played (`test_leadership_histories`).
"""

import asyncio
from random import Random
from typing import Any

from tests.integration.broker.test_coordinator_runtime import Counters
from tests.support.patience import patient
from tests.unit.busway_bus.coordinator.brokers import turn
from tests.unit.busway_bus.coordinator.test_leadership import TOPIC, Counting

from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.record import decode_records

NODES = (1, 2, 3)
LEADER = 0
ASKED = (LEADER, LEADER, LEADER, *NODES)
"""Whom a client asks: mostly the leader."""
_REFUSALS = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

WEIGHTS = {"add": 4, "read": 4, "fetch": 3, "replicate": 1, "lead": 3, "deaf": 1, "hears": 1}
LENGTH = 12
PER_SEED = 10


def drawn(chance: Random) -> list[tuple[str, int]]:
    """A history: what happens, and to which broker."""
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
    return [(kind, chance.choice(ASKED if kind in {"add", "read"} else (*NODES, *NODES, -1))) for kind in kinds]


class History:
    """Requests and what became of them. Each write has a name of its own."""

    def __init__(self, brokers: Counting) -> None:
        self.brokers = brokers
        self.asked: list[tuple[str | None, asyncio.Task[Any]]] = []
        self.electable = set(NODES)

    def add(self, node_id: int) -> None:
        name = f"n{len(self.asked)}"
        self.asked.append((name, asyncio.ensure_future(self.brokers.add(node_id, name))))

    def read(self, node_id: int) -> None:
        runtime = self.brokers.runtimes[node_id]

        async def read() -> dict[str, int]:
            return await runtime.read(0, lambda shard: dict(shard.numbers))

        self.asked.append((None, asyncio.ensure_future(read())))

    async def lead(self, node_id: int) -> None:
        if node_id == -1 or self._has_all_committed(node_id):
            await self.brokers.lead(TOPIC, 0, node_id)

    def _has_all_committed(self, node_id: int) -> bool:
        """Whether a broker may lead: all brokers are in sync, so that this holds unless the test itself erred."""
        partition = self.brokers.partition(node_id, TOPIC, 0)
        committed = max(self.brokers.partition(each, TOPIC, 0).high_watermark for each in NODES)
        return partition.log.end_offset >= committed

    async def hears(self, node_id: int) -> None:
        self.brokers[node_id].deaf = False
        await self.brokers.apply()

    def check_served(self) -> None:
        for node_id, runtime in self.brokers.runtimes.items():
            for shard in [loaded.shard for number, loaded in runtime._loaded.items() if number == 0 and loaded.current]:
                assert shard.numbers == logged(self.brokers, node_id), "a shard is not what its log says"

    def check_kept(self, final: dict[str, int]) -> None:
        for name, task in self.asked:
            problem = task.exception()
            if problem is not None:
                assert isinstance(problem, KafkaError)
                assert problem.code in _REFUSALS, problem
            elif name is not None:
                assert final.get(name) == 1 == task.result(), "an acknowledged write is lost, or doubled"
            else:
                assert task.result().items() <= final.items(), "a reader got what is lost"


def logged(brokers: Counting, node_id: int) -> dict[str, int]:
    reader = Counters()
    for batch in brokers.partition(node_id, TOPIC, 0).log.batches():
        for record in decode_records(batch):
            count = Counters.decode(record.key or b"", record.value)
            assert count is not None
            reader.apply(count, 0)
    return reader.numbers


async def carry_out(operations: list[tuple[str, int]]) -> None:
    brokers = Counting()
    try:
        await brokers.create(TOPIC, [1])
        history = History(brokers)
        for operation, asked in operations:
            leader = brokers.image.topics[TOPIC].partitions[0].leader
            node_id = asked if asked != LEADER else max(leader, 1)
            if operation in {"add", "read"}:
                await brokers.runtimes[node_id].wait_loaded(within_s=patient(10))
            if operation == "add":
                history.add(node_id)
            elif operation == "read":
                history.read(node_id)
            elif operation == "lead":
                await history.lead(node_id)
            elif node_id == -1:
                continue
            elif operation == "deaf":
                brokers[node_id].deaf = True
            elif operation == "hears":
                await history.hears(node_id)
            else:
                await brokers.replicate(TOPIC, only=None if operation == "replicate" else node_id)
            await turn()
            history.check_served()
        for node_id in NODES:
            await history.hears(node_id)
        leader = brokers.image.topics[TOPIC].partitions[0].leader
        if leader == -1:
            leader = next(node_id for node_id in NODES if history._has_all_committed(node_id))
            await brokers.lead(TOPIC, 0, leader)
        await brokers.replicate(TOPIC)
        await brokers.runtimes[leader].wait_loaded(within_s=patient(10))
        final = await brokers.runtimes[leader].read(0, lambda shard: dict(shard.numbers))
        await asyncio.wait_for(
            asyncio.wait([task for _, task in history.asked] or [asyncio.ensure_future(turn())]), patient(10)
        )
        history.check_kept(final)
    finally:
        await brokers.close()


async def play(chance: Random, count: int) -> None:
    """Carry histories out. AssertionError: a rule is broken."""
    for _ in range(count):
        history = drawn(chance)
        try:
            await carry_out(history)
        except AssertionError as problem:
            raise AssertionError(f"{problem}, after {history}") from problem


def run(seed: int, about: str = "") -> None:
    """Histories of one seed, in virtual time."""
    World(seed).run(lambda world: world.process("brokers").run(play, Random(seed), PER_SEED))
