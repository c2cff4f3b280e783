"""What a rebalance listener can rely on."""

import asyncio

import pytest
from tests.integration.client.conftest import Cluster

from busway.consumer.consumer import Consumer
from busway.consumer.listener import RebalanceListener
from busway.producer.producer import Producer

pytestmark = pytest.mark.slow


class Slow(RebalanceListener):
    """Takes its time to get ready."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ready = False

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Wait to be let go."""
        self.called.set()
        await self.go_on.wait()
        self.ready = True


async def test_no_record_is_handed_out_before_the_listener_has_returned(
    cluster: Cluster, topic: str, group: str
) -> None:
    """Records that are there already wait until the listener is ready, and then all of them come."""
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, str(number).encode())
    listener = Slow()
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        listener=listener,
    ) as consumer:
        reading = asyncio.ensure_future(consumer.getone())
        await listener.called.wait()
        while not any(assigned.buffered for assigned in consumer._fetcher.assigned.values()):
            await asyncio.wait([reading], timeout=0.01)
        assert not reading.done()
        listener.go_on.set()
        values = [(await reading).value]
        assert listener.ready
        values += [(await consumer.getone()).value for _ in range(9)]
        assert values == [str(number).encode() for number in range(10)]
