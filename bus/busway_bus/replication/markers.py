"""Writing the ends of transactions into partitions of this node.

What lives here: one way for the coordinator on this node and for those elsewhere (WriteTxnMarkers): the markers of all partitions are
written at once, then their acknowledgement is waited for. What does not: what a marker does to a log (`log.partition_log`), and to
offsets that a transaction has committed (`coordinator.groups`), which is told of the ends in `__consumer_offsets` and writes them itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction
from busway_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from busway_bus.replication.manager import ReplicaManager

WRITTEN_TOGETHER: Final = 500
"""Partitions that markers are written into between two others' requests."""
EndOffsets = Callable[[int, EndTransaction], Awaitable[ErrorCode]]
"""Ends a transaction in a partition of `__consumer_offsets`; durable when it returns NONE."""


class LocalMarkers:
    """The `MarkerWriter` of this node's partitions.

    Attributes:
        end_offsets: who keeps offsets.
    """

    def __init__(self, replicas: "ReplicaManager") -> None:
        self._replicas = replicas
        self.end_offsets: EndOffsets | None = None

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write a marker into each partition, by topic and number; a code for each, durable when it returns.

        One that is written already is written again: who asks could not know.
        """
        codes: dict[tuple[str, int], ErrorCode] = {}
        waiting: dict[tuple[str, int], asyncio.Future[None]] = {}
        offsets: list[int] = []
        for count, (topic, number) in enumerate(partitions, 1):
            if count % WRITTEN_TOGETHER == 0:
                await asyncio.sleep(0)
            if topic == OFFSETS_TOPIC:
                offsets.append(number)
                continue
            try:
                _, acknowledged = self._replicas.append_marker(self._replicas.find(topic, number), marker)
                codes[topic, number] = ErrorCode.NONE
                if acknowledged is not None:
                    waiting[topic, number] = acknowledged
            except KafkaError as problem:
                codes[topic, number] = problem.code
        for number in offsets:
            codes[OFFSETS_TOPIC, number] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.end_offsets is not None:
            ends = [self.end_offsets(number, marker) for number in offsets]
            for number, code in zip(offsets, await asyncio.gather(*ends), strict=True):
                codes[OFFSETS_TOPIC, number] = code
        if waiting:
            await asyncio.wait(waiting.values())
        for key, acknowledged in waiting.items():
            failure = acknowledged.exception()
            if failure is not None:
                assert isinstance(failure, KafkaError), "an acknowledgement fails as a partition does"
                codes[key] = failure.code
        return codes
