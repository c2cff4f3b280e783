"""WriteTxnMarkers (key 27, versions 1-2): end transactions in partitions, for transaction coordinators.

Versions: 2 has the transaction version, which decides how a marker's epoch is checked (KIP-1228).
Behaviour: a marker is acknowledged once committed. One with an epoch older than the producer's is
INVALID_PRODUCER_EPOCH during an open transaction; without one it succeeds, where Kafka refuses it. One of a replaced
coordinator is TRANSACTION_COORDINATOR_FENCED; a repeated one is written again. In `__consumer_offsets` the group
coordinator writes it, so that the offsets count from then on.
"""

import asyncio
from typing import Final

from busway_bus.handlers.common.context import RequestContext
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.security.operations import Access, Operation, Resource
from busway_protocol.apis import ApiKey
from busway_protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API = ApiKey.WRITE_TXN_MARKERS
VERSIONS = (1, 2)
MARKERS_TOGETHER: Final = 500
NEEDS = (Access(Operation.ALTER, Resource.CLUSTER), Access(Operation.CLUSTER_ACTION, Resource.CLUSTER))


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Write markers in order of arrival, and wait for many together."""
    results: list[WritableTxnMarkerResult] = []
    for start in range(0, len(request.markers), MARKERS_TOGETHER):
        together = request.markers[start : start + MARKERS_TOGETHER]
        results += await asyncio.gather(*(_write(marker, context) for marker in together))
    return WriteTxnMarkersResponse(markers=results)


async def _write(marker: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    end = EndTransaction(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    partitions = [
        (topic.name, partition_index) for topic in marker.topics for partition_index in topic.partition_indexes
    ]
    codes = await context.node.markers.write_for_peer(end, partitions)
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=partition_index, error_code=codes[topic.name, partition_index]
                    )
                    for partition_index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
