"""Producer ids from blocks that the controller reserves for this node.

Here: the current block.
Not here: the next (`controller.producer_ids`).
"""

import logging
from collections.abc import Callable
from typing import Final

from busway_bus.controller.controller import ITSELF, Controller
from busway_bus.controller.producer_ids import BLOCK_SIZE, AllocateProducerIds
from busway_bus.coordinator.shared_call import SharedCall
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.producers")
_LEFT_AT_PREFETCH: Final = BLOCK_SIZE // 10
"""Ids left when the next block is reserved, as in Kafka: a controller that moves holds no producer up."""


class ProducerIds:
    """Unique producer ids. `block`: the rest of the last reservation."""

    def __init__(self, controller: Controller, node_id: int, image: Callable[[], ClusterImage]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._image = image
        self.block = range(0)
        self._next = range(0)
        self._reservation = SharedCall(self._reserve)

    async def take(self) -> int:
        """Return the next id.

        KafkaError: COORDINATOR_LOAD_IN_PROGRESS, none can be reserved now; every client retries on it (Kafka's
        ProducerIdManager).
        """
        while not self.block:
            if self._next:
                self.block, self._next = self._next, range(0)
            else:
                await self._reservation.made()
        first = self.block[0]
        self.block = self.block[1:]
        if len(self.block) == _LEFT_AT_PREFETCH and not self._next:
            self._reservation.begin()
        return first

    async def _reserve(self) -> None:
        broker = self._image().brokers[self._node_id]
        command = AllocateProducerIds(broker_id=self._node_id, broker_epoch=broker.epoch)
        try:
            self._next = await self._controller.request(command, ITSELF)
        except KafkaError as problem:
            logger.error("no producer ids can be given out: %s", problem)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, problem.message) from problem
