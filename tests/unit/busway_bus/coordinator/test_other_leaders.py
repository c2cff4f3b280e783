"""What share groups need of partitions that other brokers lead: ends for their lag, and room for dead letters."""

import asyncio
from collections.abc import AsyncIterator
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.busway_bus.coordinator.brokers import Brokers

from busway.net.machine import OS
from busway_bus.coordinator.partition_ends import LeaderEnds
from busway_bus.handlers import list_offsets
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.metadata.records import ConfigRecord
from busway_bus.share.dead_letters import ALLOWED, COPY, TOPIC_NAME, DeadLetters
from busway_bus.share.in_flight import Cause, Letter
from busway_bus.share.remote_dead_letters import RemoteDeadLetters
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.offsets import ListOffsetsRequest
from busway_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from busway_protocol.records.builder import BatchBuilder


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    made = Brokers(2)
    await made.create("data", [1, 2, 2])
    async with made.replicating():
        yield made
        await made.close()


def append(brokers: Brokers, node_id: int, partition: int, count: int) -> None:
    batch = BatchBuilder()
    for _ in range(count):
        batch.append(0, None, b"value")
    brokers[node_id].replicas.append(brokers.partition(node_id, "data", partition), batch.build())


def ends_of(brokers: Brokers) -> LeaderEnds:
    """Of broker 1, with broker 2 answering by its handler."""

    async def handle(request: Any) -> Any:
        node = SimpleNamespace(replicas=brokers[2].replicas)
        answer = list_offsets.handle(request, SimpleNamespace(node=node, api_version=11))
        return await answer if isawaitable(answer) else answer

    brokers[2].handler = handle
    first = brokers[1]
    return LeaderEnds(first.replicas, 1, first.channels, image=lambda: first.image, timeout_ms=30_000)


async def test_ends_are_asked_of_the_leaders(brokers: Brokers) -> None:
    append(brokers, 1, 0, 3)
    append(brokers, 2, 2, 5)
    await until(lambda: brokers.partition(2, "data", 2).high_watermark >= 5, pause_s=0.001)
    await until(lambda: brokers.partition(1, "data", 0).high_watermark >= 3, pause_s=0.001)
    ends = ends_of(brokers)
    assert await asyncio.gather(*(ends.end("data", number) for number in range(3))) == [3, 0, 5]
    assert {type(request) for _, request in brokers[1].channels.sent} == {ListOffsetsRequest}


async def test_an_end_without_a_leader_is_an_error(brokers: Brokers) -> None:
    ends = ends_of(brokers)
    await brokers.lead("data", 1, -1)
    for expected, number in ((ErrorCode.LEADER_NOT_AVAILABLE, 1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9)):
        with pytest.raises(KafkaError) as refusal:
            await ends.end("data", number)
        assert refusal.value.code is expected
    brokers.unreachable.add(2)
    with pytest.raises(KafkaError) as refusal:
        await ends.end("data", 2)
    assert refusal.value.code is ErrorCode.BROKER_NOT_AVAILABLE


class Produced:
    """Broker 2, which takes dead letters."""

    def __init__(self) -> None:
        self.requests: list[ProduceRequest] = []
        self.code = ErrorCode.NONE

    async def handle(self, request: ProduceRequest) -> ProduceResponse:
        self.requests.append(request)
        row = PartitionProduceResponse(index=0, error_code=self.code, base_offset=0)
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[row])])


async def test_dead_letters_go_to_the_leader(brokers: Brokers) -> None:
    """With acks=all; its refusal is that of the write, which is tried again later."""
    await brokers.create("dlq.letters", [2])
    await brokers.apply(ConfigRecord(resource_type=2, resource_name="dlq.letters", name=ALLOWED, value="true"))
    produced = Produced()
    brokers[2].handler = produced.handle
    first = brokers[1]
    settings = {TOPIC_NAME: "dlq.letters", COPY: False}
    letters = DeadLetters(
        first.config,
        first.replicas,
        OS,
        image=lambda: first.image,
        setting=lambda group_id, name: settings[name],
        create_topic=lambda name: asyncio.sleep(0),
        remote=RemoteDeadLetters(first.channels, timeout_ms=30_000),
    )
    key = SharePartitionKey(group_id="g", topic_id=brokers.image.topics["data"].topic_id, partition=0)
    letter = Letter(first=0, last=1, delivery_count=5, cause=Cause.REJECTED)
    source = brokers.partition(1, "data", 0)
    assert await letters.write(key, source, [letter]) == [letter]
    (request,) = produced.requests
    assert (request.acks, request.topic_data[0].name) == (-1, "dlq.letters")
    assert request.topic_data[0].topic_id == brokers.image.topics["dlq.letters"].topic_id
    produced.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refusal:
        await letters.write(key, source, [letter])
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
