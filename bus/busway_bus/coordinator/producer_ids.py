"""Producer ids from blocks that the controller reserves for this node.

Here: the current block.
Not here: the next (`controller.producer_ids`).
"""

import logging
from collections.abc import Callable

from busway_bus.controller.controller import ITSELF, Controller
from busway_bus.controller.producer_ids import AllocateProducerIds
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.producers")


class ProducerIds:
    """Unique producer ids. `block`: the rest of the last reservation."""

    def __init__(self, controller: Controller, node_id: int, image: Callable[[], ClusterImage]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._image = image
        self.block = range(0)

    async def take(self) -> int:
        """Return the next id.

        KafkaError: COORDINATOR_LOAD_IN_PROGRESS, none can be reserved now; every client retries on it (Kafka's
        ProducerIdManager).
        """
        while not self.block:
            # Concurrent callers each reserve a block; those that lose the race are never used.
            broker = self._image().brokers[self._node_id]
            command = AllocateProducerIds(broker_id=self._node_id, broker_epoch=broker.epoch)
            try:
                block = await self._controller.request(command, ITSELF)
            except KafkaError as problem:
                logger.error("no producer ids can be given out: %s", problem)
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, problem.message) from problem
            if not self.block:
                self.block = block
        first = self.block[0]
        self.block = self.block[1:]
        return first
