"""All records of a topic up to what is its end now.

What lives here: reading without a group, once, to an end. What does not: following a topic (`consumer`).
"""

from collections.abc import AsyncGenerator, Iterable, Mapping

from busway.cluster.client import Addresses
from busway.consumer.consumer import Consumer
from busway.types import Record, TopicPartition


async def read_to_end(
    bootstrap_servers: Addresses,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    starts: Mapping[int, int] | None = None,
    client_id: str = "busway",
) -> AsyncGenerator[Record, None]:
    """The records of a topic, or of some of its partitions, each partition in order, from its first or from where `starts` says.

    Raises:
        BrokerError: the topic cannot be had.
        ConnectionFailed: no broker can be reached.
    """
    async with Consumer(
        bootstrap_servers=bootstrap_servers, client_id=client_id, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe([topic])
        assigned = consumer.assignment()
        wanted = assigned if partitions is None else {TopicPartition(topic, number) for number in partitions} & assigned
        beginnings = await consumer.beginning_offsets(wanted)
        for partition, first in beginnings.items():
            beginnings[partition] = max(first, (starts or {}).get(partition.partition, first))
        ends = await consumer.end_offsets(wanted)
        left = {partition: end for partition, end in ends.items() if beginnings[partition] < end}
        await consumer.assign(left)
        for partition in left:
            consumer.seek(partition, beginnings[partition])
        while left:
            for partition, records in (await consumer.getmany(*left, timeout_ms=1000)).items():
                for record in records:
                    if record.offset < left[partition]:
                        yield record
            for partition in list(left):
                # The position also passes offsets that hold no record any more, or a marker.
                if await consumer.position(partition) >= left[partition]:
                    del left[partition]
