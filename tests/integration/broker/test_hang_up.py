"""The client may be gone at any moment: what it asked for is there whole or not at all, now and after a restart."""

import asyncio
import inspect
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from busway_bus.handlers.common.context import Peer, RequestContext
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.handlers.registry import HANDLERS
from busway_bus.metadata.sorted_map import SortedMap
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.messages import configs, groups_classic, offsets, topics, transactions
from busway_protocol.types import ZERO_UUID


class CancelledAt:
    """A coroutine that is cancelled when it waits for the n-th time."""

    def __init__(self, coroutine, n):
        self._coroutine, self._n = coroutine, n
        self.over = False
        """Whether it came to its end before it was cancelled."""

    def __await__(self):
        inner, cancelled = self._coroutine.__await__(), False
        try:
            waits = next(inner)
            for _ in range(self._n):
                yield waits
                waits = inner.send(None)
            cancelled = True
            waits.cancel()  # as a task's cancellation does with what it waits for
            waits = inner.throw(asyncio.CancelledError)
            while True:  # it may wait for what it has begun
                yield waits
                waits = inner.send(None)
        except StopIteration:
            self.over = not cancelled
        except asyncio.CancelledError:
            pass


def create(number):
    topic = topics.CreatableTopic(
        name=f"new{number}",
        num_partitions=3,
        replication_factor=1,
        assignments=[],
        configs=[topics.CreatableTopicConfig(name="retention.ms", value="7")],
    )
    return topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def delete(number):
    return topics.DeleteTopicsRequest(
        topics=[topics.DeleteTopicState(name=f"t{number}", topic_id=ZERO_UUID)], timeout_ms=1000
    )


def grow(number):
    return topics.CreatePartitionsRequest(
        topics=[topics.CreatePartitionsTopic(name=f"t{number}", count=4, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )


def alter(number):
    resource = configs.AlterConfigsResource(
        resource_type=2,
        resource_name=f"t{number}",
        configs=[configs.AlterableConfig(name="retention.ms", value=str(number + 99))],
    )
    return configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def coordinator(number):
    return groups_classic.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{number}"])


def producer(number):
    return transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def records(number):
    topic = offsets.DeleteRecordsTopic(
        name=f"t{number}", partitions=[offsets.DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    return offsets.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


CASES = {
    ApiKey.CREATE_TOPICS: create,
    ApiKey.DELETE_TOPICS: delete,
    ApiKey.CREATE_PARTITIONS: grow,
    ApiKey.ALTER_CONFIGS: alter,
    ApiKey.FIND_COORDINATOR: coordinator,
    ApiKey.INIT_PRODUCER_ID: producer,
    ApiKey.DELETE_RECORDS: records,
}
WAITS_MAX = 12


def state(node):
    """What the node would say of itself: its image, and each partition's log with its settings."""
    image, replicas = node.services.image, node.services.replicas
    image = replace(image, brokers=SortedMap())  # every start registers again
    logs = {}
    for topic in image.topics.values():
        for number in range(len(topic.partitions)):
            partition = replicas.find(topic.name, number)
            logs[topic.name, number] = (partition.topic_id, partition.log.end_offset, partition.log.config)
    return image, logs


WAITING = [key for key in CASES if key is not ApiKey.METADATA]
"""What is answered when it is done; topics that are made behind Metadata keep no client waiting."""


@pytest.mark.slow
@pytest.mark.parametrize("key", WAITING, ids=[key.name for key in WAITING])
async def test_a_request_that_is_cancelled_at_any_wait_leaves_the_same_state_as_a_restart(key, caplog):
    """At its first wait, its second, …: live state and that of the next start agree, and asking again works."""
    cluster = LocalCluster(properties={"offsets.topic.num.partitions": "2"})
    async with cluster:
        node = cluster.node
        api = HANDLERS[int(key)]
        context = RequestContext(
            api_version=api.max_version,
            client_id=None,
            client_host="local",
            peer=Peer(),
            advertised=next(iter(node.advertised.values())),
            node=node.services,
        )
        for number in range(WAITS_MAX):
            await create_topic(node.services, f"t{number}", partitions=2, replication_factor=1)
            node.services.producer_ids.block = range(0)
            attempt = CancelledAt(api.handle(CASES[key](number), context), number)
            await attempt
            if attempt.over:
                break
            await node.services.metadata.drain()
            again = api.handle(CASES[key](number), context)
            if inspect.isawaitable(again):
                await again
        else:
            raise AssertionError(f"{key.name} waits more than {WAITS_MAX} times")
        await node.services.metadata.drain()
        before = state(node)
        caplog.clear()
        await cluster.stop()
        with caplog.at_level(logging.WARNING):
            await cluster.start()
        assert state(cluster.node) == before
        assert not caplog.records
        assert UUID(int=0) not in before[0].names
