"""Which topics there are behind the names, and where they end.

What lives here: asking the brokers. What does not: what follows from it for the inbox (`inbox`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from busway.admin.admin import Admin
from busway.cluster.client import Addresses
from busway.sql.reach import is_broker_away, patiently
from busway.types import TopicPartition

_END = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A partition's topic.

    Attributes:
        topic_id: its id; None from brokers that give none (before KIP-516).
        end: the offset that its next record gets.
    """

    topic_id: UUID | None
    end: int

    def is_other_than(self, topic_id: UUID | None) -> bool:
        """Whether it is surely not the topic with that id."""
        return self.topic_id is not None and topic_id is not None and self.topic_id != topic_id


async def look_at(
    bootstrap_servers: Addresses, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, TopicState]:
    """The topics of these partitions; those that are not there are missing. Waits for brokers that cannot answer."""

    async def ask() -> dict[TopicPartition, TopicState]:
        async with Admin(bootstrap_servers, client_id="busway-sql") as admin:
            topics = await admin.describe_topics()
            there = [partition for partition in partitions if partition.topic in topics]
            ends = await admin.list_offsets(dict.fromkeys(there, _END))
        return {
            partition: TopicState(
                topic_id=topics[partition.topic].topic_id if topics[partition.topic].topic_id.int else None, end=end
            )
            for partition, end in ends.items()
        }

    return await patiently(ask, "the assignment of partitions", is_broker_away)
