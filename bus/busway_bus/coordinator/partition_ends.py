"""Ends of partitions that other brokers lead, for the lag of share groups.

Here: ListOffsets requests, many partitions together, as in Kafka's `NetworkPartitionMetadataClient`.
Not here: the lag (`handlers.describe_share_group_offsets`).
"""

from collections.abc import Callable, Sequence
from typing import Final

from busway_bus.coordinator.broker_queues import BrokerQueues, Destination
from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.metadata.image import NO_LEADER, ClusterImage
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TopicPartition = tuple[str, int]
_PURPOSE: Final = "ends"
_TOGETHER: Final = 1_000
"""Partitions of one request."""
_LATEST: Final = -1
_CONSUMER: Final = -1
"""Replica id of a client."""


class PartitionEnds:
    """High watermarks of partitions, wherever they are led.

    Args:
        channels: to other brokers; None where there are none.
        timeout_ms: of a request.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        node_id: int,
        channels: BrokerChannels | None,
        *,
        image: Callable[[], ClusterImage],
        timeout_ms: int,
    ) -> None:
        self._replicas = replicas
        self._node_id = node_id
        self._channels = channels
        self._image = image
        self._timeout_ms = timeout_ms
        self.queues: BrokerQueues[TopicPartition, ListOffsetsPartitionResponse] = BrokerQueues(
            self._send, key=lambda topic_partition: topic_partition, at_once=_TOGETHER
        )

    async def end(self, topic: str, partition: int) -> int:
        """Return a partition's high watermark.

        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, the leader's refusal, an error of `BrokerChannels`.
        """
        placed = self._image().partition(topic, partition)
        if placed is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._channels is None or placed.leader == self._node_id:
            return self._replicas.find(topic, partition).high_watermark
        if placed.leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        row = await self.queues.ask(Destination(placed.leader), (topic, partition))
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(row.error_code))
        return row.offset

    async def _send(
        self, destination: Destination, asked: Sequence[TopicPartition]
    ) -> list[ListOffsetsPartitionResponse]:
        assert self._channels is not None
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in asked:
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=_LATEST))
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self._timeout_ms,
        )
        response: ListOffsetsResponse = await self._channels.send(
            destination.node_id, request, purpose=_PURPOSE, timeout_ms=self._timeout_ms
        )
        rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
        return [rows[topic_partition] for topic_partition in asked]
