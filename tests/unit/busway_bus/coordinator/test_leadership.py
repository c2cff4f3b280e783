"""The runtime follows the leadership of its topic's partitions, on several brokers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.broker.test_coordinator_runtime import Counters
from tests.support.patience import patient
from tests.unit.busway_bus.coordinator.brokers import Brokers, machine, turn

from busway_bus.coordinator.runtime import Runtime
from busway_protocol.errors import ErrorCode, KafkaError

TOPIC = "counters"


class Counting(Brokers):
    """Three brokers with a runtime each."""

    def __init__(self) -> None:
        super().__init__(3)
        self.runtimes: dict[int, Runtime[Counters]] = {}
        for broker in self:
            runtime = self.runtimes[broker.node_id] = Runtime(
                TOPIC,
                Counters,
                replicas=broker.replicas,
                machine=machine(),
                image=lambda broker=broker: broker.image.topics.get(TOPIC),
            )
            broker.watchers.append(runtime.follow)

    async def add(self, node_id: int, name: str, by: int = 1) -> int:
        return await self.runtimes[node_id].write(0, lambda shard: shard.add(name, by))

    def shards(self, node_id: int) -> list[int]:
        return list(self.runtimes[node_id].shards())

    async def loaded(self, node_id: int) -> None:
        await self.runtimes[node_id].wait_loaded(within_s=patient(10))
        await turn()

    async def close(self) -> None:
        for runtime in self.runtimes.values():
            runtime.close()
        await super().close()


@pytest.fixture
async def brokers() -> AsyncIterator[Counting]:
    made = Counting()
    await made.create(TOPIC, [1, 2])
    yield made
    await made.close()


def code(task: "asyncio.Task[Any]") -> ErrorCode:
    problem = task.exception()
    assert isinstance(problem, KafkaError)
    return problem.code


async def test_a_shard_is_loaded_with_leadership(brokers: Counting) -> None:
    """Without a request for it: timers of members and transactions run from then on."""
    assert [brokers.shards(node_id) for node_id in (1, 2, 3)] == [[0], [1], []]
    await brokers.lead(TOPIC, 0, 3)
    assert [brokers.shards(node_id) for node_id in (1, 2, 3)] == [[], [1], [0]]
    await brokers.delete(TOPIC)
    assert [brokers.shards(node_id) for node_id in (1, 2, 3)] == [[], [], []]


async def test_state_survives_a_failover(brokers: Counting) -> None:
    """The new leader has what was acknowledged, and goes on from it."""
    writing = asyncio.ensure_future(brokers.add(1, "a"))
    await turn()
    assert not writing.done(), "not on the in-sync replicas yet"
    await brokers.replicate(TOPIC)
    assert await writing == 1
    await brokers.lead(TOPIC, 0, 2)
    await brokers.loaded(2)
    with pytest.raises(KafkaError) as refusal:
        await brokers.add(1, "a")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    writing = asyncio.ensure_future(brokers.add(2, "a"))
    await turn()
    await brokers.replicate(TOPIC)
    assert await writing == 2


async def test_a_new_leader_serves_at_once_and_answers_once_committed(brokers: Counting) -> None:
    """Its log's end is not known to be committed before its followers have fetched."""
    lost = asyncio.ensure_future(brokers.add(1, "a"))
    await turn()
    await brokers.replicate(TOPIC)
    assert await lost == 1
    brokers.partition(2, TOPIC, 0).state.high_watermark = 0  # as a follower that has not fetched since
    await brokers.lead(TOPIC, 0, 2)
    await brokers.loaded(2)
    assert brokers.shards(2) == [1, 0] or brokers.shards(2) == [0, 1]
    reading = asyncio.ensure_future(brokers.runtimes[2].read(0, lambda shard: dict(shard.numbers)))
    await turn()
    assert not reading.done()
    await brokers.replicate(TOPIC)
    assert await reading == {"a": 1}


async def test_requests_of_a_lost_leader_look_for_the_new_one(brokers: Counting) -> None:
    """Parked ones, those that wait for their records, and those that come."""
    runtime = brokers.runtimes[1]
    parked = asyncio.ensure_future(
        runtime.park(0, lambda shard, waiter: shard.wait("a", 9, runtime.now() + 60_000, waiter), lambda _: None)
    )
    writing = asyncio.ensure_future(brokers.add(1, "a"))
    await turn()
    await brokers.lead(TOPIC, 0, 2)
    await turn()
    assert {code(parked), code(writing)} == {ErrorCode.NOT_COORDINATOR}
    assert brokers.shards(1) == []


async def test_a_decision_of_an_old_epoch_is_refused(brokers: Counting) -> None:
    """Leadership was lost and regained within one image: another broker may have written meanwhile."""
    writing = asyncio.ensure_future(brokers.add(1, "a"))
    await turn()
    await brokers.replicate(TOPIC)
    assert await writing == 1
    old = brokers.runtimes[1]._loaded[0]
    brokers[1].watchers.clear()  # the replica knows of its new epoch before the coordinator does
    brokers[1].deaf = True
    await brokers.lead(TOPIC, 0, 2)
    await brokers.loaded(2)
    brokers[1].deaf = False
    await brokers.lead(TOPIC, 0, 1)
    with pytest.raises(KafkaError) as refusal:
        brokers.runtimes[1]._decide(old, lambda shard: shard.add("a", 1))
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert brokers.runtimes[1]._loaded[0] is old
    with pytest.raises(KafkaError) as refusal:
        brokers.runtimes[1].shard(0)
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await brokers.loaded(1)
    assert brokers.runtimes[1].shard(0).numbers == {"a": 1}


async def test_a_load_of_an_old_epoch_is_dropped(brokers: Counting) -> None:
    """A client that asks a broker that lost the partition during the load looks for the new one."""
    writing = asyncio.ensure_future(brokers.add(1, "a"))
    await turn()
    await brokers.replicate(TOPIC)
    assert await writing == 1
    await brokers.lead(TOPIC, 0, 2)
    assert brokers.runtimes[2].loading
    await brokers.lead(TOPIC, 0, 3)
    assert not brokers.runtimes[2].loading
    with pytest.raises(KafkaError) as refusal:
        brokers.runtimes[2].shard(0)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    await brokers.loaded(3)
    assert brokers.runtimes[3].shard(0).numbers == {"a": 1}


async def test_a_reply_waits_for_replicas_no_longer_than_it_may(brokers: Counting) -> None:
    """The client asks again; what it asked for may hold then."""
    runtime = brokers.runtimes[1]
    runtime._timeout_s = 0.001
    for ask in (brokers.add(1, "a"), runtime.read(0, lambda shard: None)):
        with pytest.raises(KafkaError) as refusal:
            await ask
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await brokers.replicate(TOPIC)
    assert await runtime.read(0, lambda shard: dict(shard.numbers)) == {"a": 1}
