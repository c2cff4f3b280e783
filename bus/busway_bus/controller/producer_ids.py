"""Producer ids, given out in blocks so that each one costs no write.

What lives here: the decision to take the next block (KIP-360). After a restart the rest of the old block is skipped, never
given twice.
"""

from typing import Final

from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000


def next_block(image: ClusterImage, node_id: int) -> Decision[range]:
    """Reserve the next block of ids for this node."""
    first = image.next_producer_id
    record = ProducerIdsRecord(broker_id=node_id, next_producer_id=first + BLOCK_SIZE)
    return Decision(records=(record,), reply=range(first, first + BLOCK_SIZE))
