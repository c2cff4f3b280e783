"""A node that dies between a request and the first step of its answer leaves nothing behind that was never awaited."""

import asyncio
import gc
import warnings
from functools import partial
from typing import Any, cast

import pytest
from tests.support.raw_client import RawClient, frame

from busway_bus.server.connection import Connection
from busway_bus.server.dispatch import BROKER
from busway_bus.server.transport_stream import TransportStream
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.groups_classic import OffsetFetchRequest
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest

WAITING = FetchRequest(
    max_wait_ms=10_000,
    min_bytes=1,
    max_bytes=1000,
    session_epoch=-1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])],
)


class Nowhere(asyncio.Transport):
    """Takes what is written."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Without end."""

    def write(self, data: Any) -> None:
        """Gone."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def abort(self) -> None:
        """Nothing to end."""

    def pause_reading(self) -> None:
        """As it likes."""


@pytest.mark.parametrize(("request_", "version"), [(WAITING, 11), (OffsetFetchRequest(group_id="g", topics=None), 6)])
async def test_an_answer_that_has_not_begun_is_closed(cluster: LocalCluster, request_: object, version: int) -> None:
    """The request is taken in, and the connection given up before the loop turns once more."""
    async with RawClient(cluster.bootstrap_servers) as client:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert cluster.node is not None
    (partition,) = (each for each in cluster.node.services.replicas.local if each.topic == "t")
    listeners = cluster.node._listeners
    stream = TransportStream(partial(listeners._accept, "PLAINTEXT", BROKER), listeners._shared)
    stream.connection_made(Nowhere())
    data = frame(request_, version)
    stream.get_buffer(-1)[: len(data)] = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream.buffer_updated(len(data))
        cast("Connection", stream.owner).give_up()
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    assert not partition.waiters
    stream.connection_lost(None)
