"""Commits of at_least_once offsets.

Here: committing regularly and on revocation, one commit at a time.
Not here: committable offsets (`partition_offsets`), transactions (`transactor`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from busway.app.extending.hooks import Hooks
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.consumer.consumer import Consumer
from busway.errors import BrokerError, BuswayError, CommitFailed
from busway.net.clock import APP_TIME
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode

logger: logging.Logger = logging.getLogger("busway.app")


class Commits:
    """Commits of partitions' offsets, every `interval_s` seconds."""

    def __init__(
        self,
        assigned: Callable[[], Sequence[PartitionOffsets]],
        consumer: Callable[[], Consumer],
        position: Callable[[PartitionOffsets], int | None],
        hooks: Hooks,
        interval_s: float,
    ) -> None:
        self._assigned = assigned
        self._consumer = consumer
        self._position = position
        self._hooks = hooks
        self._interval_s = interval_s
        self._committing = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await APP_TIME.sleep(self._interval_s)
            async with self._committing:  # one at a time, so that a slow commit never overtakes a later one
                await self._commit_now(self._assigned())

    async def commit(self, partitions: Sequence[PartitionOffsets]) -> None:
        async with self._committing:
            await self._commit_now(partitions)

    async def _commit_now(self, partitions: Sequence[PartitionOffsets]) -> None:
        offsets = {
            assigned: at
            for assigned in partitions
            if (at := assigned.committable(self._position(assigned))) is not None and at != assigned.committed
        }
        if not offsets:
            return
        first = {
            assigned.partition: assigned.done.first if assigned.committed is None else assigned.committed.offset
            for assigned in offsets
            if assigned.done.all_finished is not None  # a start position after a reset is no step of a record
        }
        await self._hooks.reached_each("before-commit", first)
        try:
            await self._send({assigned.partition: at for assigned, at in offsets.items()})
        except CommitFailed as problem:
            logger.warning("the group has moved on; what was handled will be handled again: %s", problem)
            return
        except BuswayError as problem:
            logger.warning("offsets were not committed, the next commit brings them: %s", problem)
            return
        moved = {
            assigned.partition: at.offset
            for assigned, at in offsets.items()
            if assigned.committed is None or assigned.committed.offset != at.offset
        }
        for assigned, at in offsets.items():
            assigned.committed = at
        await self._hooks.committed(moved)
        await self._hooks.reached_each("after-commit", first)

    async def _send(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self._consumer().commit(offsets)
        except BrokerError as problem:
            if problem.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            # These brokers lower offset.metadata.max.bytes: records finished ahead may be redelivered.
            await self._consumer().commit({partition: at.offset for partition, at in offsets.items()})
