"""What the group's offsets and their metadata say is finished of partitions that an app begins with.

What lives here: asking for it. What does not: what is committed (`completed_offsets`, `offset_set`), where a partition is begun (`worker`).
"""

import logging
from collections.abc import Sequence

from busway.app.offset_set import OffsetSet
from busway.cluster.retry import Backoff
from busway.consumer.consumer import Consumer
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine
from busway.types import TopicPartition

logger = logging.getLogger("busway.app")


async def finished(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSet]:
    """What is finished of those that are handled exactly once; asked for until it is known."""
    pause = Backoff(current_machine().chance.random)
    while partitions:
        try:
            found = await consumer.committed_of(partitions)
        except BuswayError as problem:
            logger.warning("what the group has committed is not known yet, and is asked for again: %s", problem)
            await REAL_TIME.sleep(pause.next())
        else:
            return {partition: OffsetSet.parse(at.offset, at.metadata) for partition, at in found.items()}
    return {}


async def finished_ahead(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSet]:
    """What is finished beyond the committed offsets; where that cannot be had, it is handled again."""
    if not partitions:
        return {}
    try:
        committed = await consumer.committed_of(partitions)
        found = {
            partition: OffsetSet.parse(at.offset, at.metadata) for partition, at in committed.items() if at.metadata
        }
        found = {partition: ahead for partition, ahead in found.items() if ahead.end > ahead.below}
        ends = await consumer.end_offsets(found) if found else {}
    except BuswayError as problem:
        logger.warning("what was finished ahead of the committed offsets is not known and handled again: %s", problem)
        return {}
    # A log that ends below has lost its tail: those offsets are, or will be, other records'.
    return {partition: ahead for partition, ahead in found.items() if ahead.end <= ends.get(partition, 0)}
