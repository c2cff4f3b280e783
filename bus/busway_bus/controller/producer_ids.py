"""Producer ids, allocated in blocks so that each id needs no write.

Here: the decision on the next block (KIP-730). A restart skips the rest of the old block.
"""

from dataclasses import dataclass
from typing import Final

from busway_bus.controller.brokers import registered
from busway_bus.controller.controller import Surroundings
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Allocate a block of ids to a broker; the reply is the block."""

    broker_id: int
    broker_epoch: int

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[range]:
        """Raise STALE_BROKER_EPOCH unless the broker is registered with that epoch."""
        registered(image, self.broker_id, self.broker_epoch)
        block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
        record = ProducerIdsRecord(
            broker_id=self.broker_id, broker_epoch=self.broker_epoch, next_producer_id=block.stop
        )
        return Decision(records=(record,), reply=block)
