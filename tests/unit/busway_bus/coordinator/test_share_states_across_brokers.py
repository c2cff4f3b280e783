"""States of share partitions at the share coordinator of another broker, and while it moves."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.busway_bus.coordinator.coordinators import CoordinatedBrokers

from busway_bus.coordinator import remote_share_states
from busway_bus.groups.share.heartbeat import JOINING, ShareHeartbeat
from busway_bus.kernel.share_state import ACKNOWLEDGED, ARCHIVED, SharePartitionKey, ShareState, StateBatch
from busway_bus.kernel.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from busway_protocol.errors import ErrorCode, KafkaError

BATCHES = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, ARCHIVED, 2))


@pytest.fixture
async def brokers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CoordinatedBrokers]:
    monkeypatch.setattr(remote_share_states, "_BACKOFF_S", (0.001, 0.001))
    made = CoordinatedBrokers()
    await made.start()
    async with made.replicating():
        yield made
        await made.close()


def key_of(brokers: CoordinatedBrokers, group_id: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group_id=group_id, topic_id=brokers.image.topics["data"].topic_id, partition=0)


def change(**values: Any) -> ShareState:
    return replace(ShareState(state_epoch=3, leader_epoch=5, start_offset=0, delivery_complete_count=10), **values)


async def test_states_at_another_broker_are_as_those_at_this_one(brokers: CoordinatedBrokers) -> None:
    """Broker 3 leads the data, broker 2 has the states; what goes over the wire is what Kafka's requests have."""
    key, here, there = key_of(brokers), brokers.at(2).persister, brokers.at(3).persister
    assert await there.summary(key) == await here.summary(key)
    await there.initialize(key, state_epoch=3, start_offset=-1)
    kept = await there.read(key, leader_epoch=5)
    assert (kept.state_epoch, kept.start_offset, kept.batches) == (3, -1, ())
    await there.write(key, change(batches=BATCHES))
    kept, known = await there.read(key, leader_epoch=5), await here.read(key, leader_epoch=5)
    assert (kept.state_epoch, kept.start_offset, kept.batches) == (3, 0, BATCHES)
    assert kept.batches == known.batches
    assert await there.summary(key) == await here.summary(key) == replace(known, batches=())
    await there.delete(key)
    assert brokers.at(2).share_states.runtime.shard(0).partitions == {}


async def test_refusals_of_another_broker_are_those_of_this_one(brokers: CoordinatedBrokers) -> None:
    key, there = key_of(brokers), brokers.at(3).persister
    for expected, asked in (
        (ErrorCode.INVALID_REQUEST, there.read(key, leader_epoch=0)),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there.delete(replace(key, partition=7))),
    ):
        assert await refusal(asked) is expected
    await there.initialize(key, state_epoch=3, start_offset=0)
    await there.read(key, leader_epoch=5)
    assert await refusal(there.read(key, leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert await refusal(there.write(key, change(state_epoch=2))) is ErrorCode.FENCED_STATE_EPOCH


async def refusal(asked: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await asked
    return refused.value.code


async def test_writes_of_a_group_go_together(brokers: CoordinatedBrokers) -> None:
    """While one is under way; those of another group need another request."""
    await brokers.create("more", [3] * 5)
    topic_id = brokers.image.topics["more"].topic_id
    there = brokers.at(3).persister
    keys = [SharePartitionKey(group_id="g", topic_id=topic_id, partition=index) for index in range(5)]
    begun = len(brokers[3].channels.sent)
    asked = [there.initialize(key, state_epoch=1, start_offset=0) for key in keys]
    await asyncio.gather(*asked, there.initialize(key_of(brokers, "h"), state_epoch=1, start_offset=0))
    sizes = sorted(
        sum(len(topic.partitions) for topic in request.topics) for _, request in brokers[3].channels.sent[begun:]
    )
    assert sum(sizes) == 6
    assert len(sizes) <= 3


async def test_a_write_waits_for_the_next_coordinator(brokers: CoordinatedBrokers) -> None:
    """It has no leader, its broker is gone, or the answer is lost: then the state is at the next one, and the write too."""
    key, there = key_of(brokers), brokers.at(3).persister
    await there.initialize(key, state_epoch=3, start_offset=0)
    await there.read(key, leader_epoch=5)
    brokers.mute.add(2)
    writing = asyncio.ensure_future(there.write(key, change(batches=BATCHES)))
    await until(lambda: brokers.at(2).share_states.runtime.shard(0).partitions[key].state.batches == BATCHES)
    await brokers.replicate(SHARE_STATE_TOPIC)
    await brokers.lead(SHARE_STATE_TOPIC, 0, -1)
    await asyncio.sleep(0)
    assert not writing.done()
    await brokers.lead(SHARE_STATE_TOPIC, 0, 1)
    await writing
    assert (await brokers.at(1).persister.read(key, leader_epoch=5)).batches == BATCHES


async def test_a_coordinator_that_stays_away_is_given_up(brokers: CoordinatedBrokers) -> None:
    brokers.unreachable.add(2)
    asked = brokers.at(3).persister.read(key_of(brokers), leader_epoch=0)
    assert await refusal(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_share_group_and_its_states_are_at_two_brokers(brokers: CoordinatedBrokers) -> None:
    """Its coordinator initializes the states at the other, and after a failover of both the member goes on."""
    share_groups = brokers.at(1).share_groups

    async def heartbeat(node_id: int, epoch: int) -> Any:
        beat = ShareHeartbeat(group_id="g", member_id="m", epoch=epoch, topics=frozenset({"data"}))
        return await brokers.at(node_id).share_groups.heartbeat(beat)

    reply = await heartbeat(1, JOINING)
    await share_groups._wait_initialized("g")
    reply = await heartbeat(1, reply.epoch)
    assert reply.assignment == {key_of(brokers).topic_id: (0,)}
    assert key_of(brokers) in brokers.at(2).share_states.runtime.shard(0).partitions
    await brokers.lead(OFFSETS_TOPIC, 0, 3)
    await brokers.lead(SHARE_STATE_TOPIC, 0, 1)
    await until(lambda: bool(brokers.at(3).groups.runtime.shards()))
    again = await heartbeat(3, reply.epoch)
    assert (again.epoch, again.assignment) == (reply.epoch, reply.assignment)
    assert await refusal(heartbeat(1, reply.epoch)) is ErrorCode.NOT_COORDINATOR
    summary = await brokers.at(3).share_groups.summary("g", key_of(brokers).topic_id, 0)
    assert (summary.state_epoch, summary.start_offset) == (2, -1)
