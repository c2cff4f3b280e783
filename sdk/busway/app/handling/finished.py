"""Finished offsets of newly assigned partitions, fetched from the group.

Here: fetching.
Not here: committing (`completed_offsets`, `offset_set`), opening partitions (`worker`).
"""

import logging
from collections.abc import Sequence

from busway.app.offset_set import OffsetSet
from busway.consumer.consumer import Consumer
from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.machine import current_machine
from busway.net.retry import Backoff
from busway.types import TopicPartition

logger: logging.Logger = logging.getLogger("busway.app")


async def finished(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSet]:
    """Fetch finished offsets of exactly_once partitions, retrying until they are known."""
    pause = Backoff(current_machine().chance.random)
    while partitions:
        try:
            committed = await consumer.committed_of(partitions)
        except BuswayError as problem:
            logger.warning("what the group has committed is not known yet, and is asked for again: %s", problem)
            await REAL_TIME.sleep(pause.next())
        else:
            return {partition: OffsetSet.parse(at.offset, at.metadata) for partition, at in committed.items()}
    return {}


async def finished_ahead(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSet]:
    """Fetch offsets finished beyond the committed ones; on failure they are handled again."""
    if not partitions:
        return {}
    try:
        committed = await consumer.committed_of(partitions)
        offset_sets = {
            partition: OffsetSet.parse(at.offset, at.metadata) for partition, at in committed.items() if at.metadata
        }
        offset_sets = {partition: ahead for partition, ahead in offset_sets.items() if ahead.end > ahead.below}
        ends = await consumer.end_offsets(offset_sets) if offset_sets else {}
    except BuswayError as problem:
        logger.warning("what was finished ahead of the committed offsets is not known and handled again: %s", problem)
        return {}
    # A log that ends below has lost its tail: those offsets belong, or will belong, to other records.
    return {partition: ahead for partition, ahead in offset_sets.items() if ahead.end <= ends.get(partition, 0)}
