"""All records of a topic up to its current end, read once, without a group.

Not here: following a topic (`consumer`).
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from busway.consumer.consumer import Consumer
from busway.security.options import SecurityOptions
from busway.types import Addresses, Record, TopicPartition

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A topic with its current bounds: by partition, the first offset and the one behind the last."""

    topic: str
    begins: Mapping[int, int]
    ends: Mapping[int, int]
    consumer: Consumer

    async def records(self, starts: Mapping[int, int] | None = None) -> AsyncGenerator[Record, None]:
        """Yield records, each partition in order, from `starts` or the log start, whichever is later."""
        first = {
            partition_index: max(begin, (starts or {}).get(partition_index, begin))
            for partition_index, begin in self.begins.items()
        }
        left = {
            TopicPartition(self.topic, partition_index): end
            for partition_index, end in self.ends.items()
            if first.get(partition_index, 0) < end
        }
        await self.consumer.assign(left)
        for partition in left:
            self.consumer.seek(partition, first[partition.partition])
        while left:
            for partition, records in (await self.consumer.getmany(*left, timeout_ms=1000)).items():
                for record in records:
                    if record.offset < left[partition]:
                        yield record
            for partition in list(left):
                # The position also passes compacted offsets and markers.
                if await self.consumer.position(partition) >= left[partition]:
                    del left[partition]


@contextlib.asynccontextmanager
async def snapshot(
    bootstrap_servers: Addresses,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    client_id: str = "busway",
    isolation_level: IsolationLevel = "read_uncommitted",
    security: SecurityOptions | None = None,
) -> AsyncIterator[Snapshot]:
    """Open a topic, or some partitions, up to its current end.

    Args:
        isolation_level: read_committed waits for transactions open before that end.
        security: TLS and SASL; by default the environment's, else plain text.

    Raises:
        BrokerError: the topic is not available.
        ConnectionFailed: no broker is reachable.
    """
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        client_id=client_id,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        security=security,
    ) as consumer:
        await consumer.subscribe([topic])
        assigned = consumer.assignment()
        wanted = (
            assigned
            if partitions is None
            else {TopicPartition(topic, partition_index) for partition_index in partitions} & assigned
        )
        begins = await consumer.beginning_offsets(wanted)
        ends = await consumer.end_offsets(wanted, open_too=True)
        yield Snapshot(
            topic=topic,
            begins={partition.partition: offset for partition, offset in begins.items()},
            ends={partition.partition: offset for partition, offset in ends.items()},
            consumer=consumer,
        )


async def read_to_end(
    bootstrap_servers: Addresses,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    starts: Mapping[int, int] | None = None,
    client_id: str = "busway",
    isolation_level: IsolationLevel = "read_uncommitted",
    security: SecurityOptions | None = None,
) -> AsyncGenerator[Record, None]:
    """Yield a topic's records up to its current end, each partition in order, from `starts` or the log start.

    Other arguments and errors: see `snapshot`.
    """
    async with snapshot(
        bootstrap_servers,
        topic,
        partitions,
        client_id=client_id,
        isolation_level=isolation_level,
        security=security,
    ) as current:
        async for record in current.records(starts):
            yield record
