"""Transaction markers for partitions of this node: a `kernel.transactions.MarkerWriter`.

Here: markers of offsets through the group coordinator, others to the log.
Not here: which transactions end (`markers`), the effect (`log.producer_state`, `groups.pending_offsets`).
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError

_YIELD_EVERY: Final = 50
"""Markers between two yields."""
_BEGIN_TOGETHER: Final = 50
"""Markers of peers started per loop iteration."""
_TIMEOUT_MS: Final = 30_000
"""Kafka's default of `request.timeout.ms`."""


class LocalMarkerWriter:
    """Writes markers of this node's partitions.

    `timeout_ms`: longest wait for other replicas; then REQUEST_TIMED_OUT, and the marker is written again.
    """

    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator, *, timeout_ms: int = _TIMEOUT_MS) -> None:
        self._timeout_s = timeout_ms / 1000
        self._replicas = replicas
        self._groups = groups
        self._begin = asyncio.Semaphore(_BEGIN_TOGETHER)

    async def write_for_peer(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """As `write`, `_BEGIN_TOGETHER` per loop iteration: many peers may send one each."""
        async with self._begin:
            await asyncio.sleep(0)
        return await self.write(marker, partitions)

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        codes: dict[tuple[str, int], ErrorCode] = {}
        durable: dict[tuple[str, int], asyncio.Future[None]] = {}
        replicated = False
        for count, (topic, partition) in enumerate(partitions, 1):
            if topic == OFFSETS_TOPIC:
                continue
            try:
                replica = self._replicas.find(topic, partition)
                _, acknowledged = self._replicas.append_marker(replica, marker)
            except KafkaError as problem:
                codes[topic, partition] = problem.code
            else:
                codes[topic, partition] = ErrorCode.NONE
                if acknowledged is not None:
                    durable[topic, partition] = acknowledged
                    replicated = replicated or bool(replica.state.followers)
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        for topic, partition in partitions:
            if topic == OFFSETS_TOPIC:
                codes[topic, partition] = await self._groups.end_transaction(partition, marker)
        deadline = asyncio.get_running_loop().time() + self._timeout_s if replicated else None
        for topic_partition, acknowledged in durable.items():
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(acknowledged)
            except TimeoutError:
                codes[topic_partition] = ErrorCode.REQUEST_TIMED_OUT
            except KafkaError as problem:
                codes[topic_partition] = problem.code
        return codes
