"""Transaction markers for partitions of all brokers: a `kernel.transactions.MarkerWriter`.

Here: which broker leads a partition, WriteTxnMarkers requests to the others, several transactions together.
Not here: this broker's own partitions (`marker_writer`), retries (`markers`).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from busway_bus.coordinator.broker_queues import BrokerQueues, Destination
from busway_bus.kernel.node_channels import BrokerChannels
from busway_bus.kernel.transactions import EndTransaction, MarkerWriter
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import NO_LEADER, ClusterImage
from busway_bus.transactions.transaction import TopicPartition, by_topic
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Codes = Mapping[TopicPartition, ErrorCode]
_PURPOSE: Final = "markers"
_TOGETHER: Final = 500
"""Markers of one request, as many as a broker writes together."""


class _Marker(NamedTuple):
    end: EndTransaction
    partitions: tuple[TopicPartition, ...]


class ClusterMarkerWriter:
    """Writes markers to each partition's leader.

    Args:
        local: writes those of this node.
        image: the newest image, which names the leaders.
        timeout_ms: of a request; then the outcome is unknown, and the marker is written again.
    """

    def __init__(
        self,
        local: MarkerWriter,
        node_id: int,
        channels: BrokerChannels,
        *,
        image: Callable[[], ClusterImage],
        timeout_ms: int,
    ) -> None:
        self._local = local
        self._node_id = node_id
        self._channels = channels
        self._image = image
        self._timeout_ms = timeout_ms
        self.queues: BrokerQueues[_Marker, Codes] = BrokerQueues(
            self._send, key=lambda marker: marker.end.producer_id, at_once=_TOGETHER
        )

    async def write_for_peer(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Codes:
        """Write markers of this node's partitions: a peer found their leader here."""
        return await self._local.write_for_peer(marker, partitions)

    async def write(self, marker: EndTransaction, partitions: Collection[TopicPartition]) -> Codes:
        """As `MarkerWriter`; LEADER_NOT_AVAILABLE or the error of the request for other brokers' partitions."""
        codes: dict[TopicPartition, ErrorCode] = {}
        by_leader = self._by_leader(partitions, codes)
        here = by_leader.pop(self._node_id, None)
        writes = [self._write_to(leader, marker, elsewhere) for leader, elsewhere in by_leader.items()]
        if here is not None:
            writes.append(self._local.write(marker, here))
        for written in await asyncio.gather(*writes):
            codes.update(written)
        return codes

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        """Give up requests to brokers that are fenced: others lead their partitions."""
        self.queues.follow(image)

    def _by_leader(
        self, partitions: Collection[TopicPartition], codes: dict[TopicPartition, ErrorCode]
    ) -> dict[int, list[TopicPartition]]:
        image, by_leader = self._image(), dict[int, list[TopicPartition]]()
        for topic_partition in partitions:
            placed = image.partition(*topic_partition)
            if placed is None:
                codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif placed.leader == NO_LEADER:
                codes[topic_partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(placed.leader, []).append(topic_partition)
        return by_leader

    async def _write_to(self, leader: int, marker: EndTransaction, partitions: Sequence[TopicPartition]) -> Codes:
        try:
            return await self.queues.ask(Destination(leader), _Marker(marker, tuple(partitions)))
        except KafkaError as problem:
            return dict.fromkeys(partitions, problem.code)

    async def _send(self, destination: Destination, markers: Sequence[_Marker]) -> list[Codes]:
        request = WriteTxnMarkersRequest(markers=[_written(marker) for marker in markers])
        response: WriteTxnMarkersResponse = await self._channels.send(
            destination.node_id, request, purpose=_PURPOSE, timeout_ms=self._timeout_ms
        )
        results = {
            result.producer_id: {
                (topic.name, partition.partition_index): ErrorCode(partition.error_code)
                for topic in result.topics
                for partition in topic.partitions
            }
            for result in response.markers
        }
        return [results[marker.end.producer_id] for marker in markers]


def _written(marker: _Marker) -> WritableTxnMarker:
    end, partitions = marker
    return WritableTxnMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction_result=end.committed,
        topics=[
            WritableTxnMarkerTopic(name=topic.topic, partition_indexes=topic.partition_ids)
            for topic in by_topic(partitions)
        ],
        coordinator_epoch=end.coordinator_epoch,
        transaction_version=end.transaction_version,
    )
