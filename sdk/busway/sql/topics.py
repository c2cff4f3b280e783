"""Ids and end offsets of topics.

Here: requesting them.
Not here: the inbox's conclusions (`inbox`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from busway.admin.admin import Admin
from busway.security.options import SecurityOptions
from busway.sql.outages import is_broker_outage, through_outages
from busway.types import Addresses, TopicPartition

_END = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """State of a partition's topic; `topic_id` is None from brokers before KIP-516."""

    topic_id: UUID | None
    end: int

    def is_other_than(self, topic_id: UUID | None) -> bool:
        return self.topic_id is not None and topic_id is not None and self.topic_id != topic_id


async def look_at(
    bootstrap_servers: Addresses, partitions: Sequence[TopicPartition], security: SecurityOptions
) -> dict[TopicPartition, TopicState]:
    async def ask() -> dict[TopicPartition, TopicState]:
        async with Admin(bootstrap_servers, client_id="busway-sql", security=security) as admin:
            topics = await admin.describe_topics()
            there = [partition for partition in partitions if partition.topic in topics]
            ends = await admin.list_offsets(dict.fromkeys(there, _END))
        return {
            partition: TopicState(
                topic_id=topics[partition.topic].topic_id if topics[partition.topic].topic_id.int else None, end=end
            )
            for partition, end in ends.items()
        }

    return await through_outages(ask, "the assignment of partitions", is_broker_outage)
