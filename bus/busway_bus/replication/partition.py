"""A partition on this node: its log, state and waiting clients.

Here: events of the log to the state, and their effects.
Not here: the high watermark (`partition_state`), files and threads (`log`).
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from busway_bus.kernel.counters import PartitionCounters
from busway_bus.log.partition_log import AppendInfo, PartitionLog
from busway_bus.metadata.image import PartitionImage
from busway_bus.replication.acknowledgements import Acknowledgements
from busway_bus.replication.partition_state import ACKS_ALL, Effect, Effects, PartitionState, Role
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.replication")


class Waiter(Protocol):
    """Listener for readable records of a partition."""

    def look_at(self, partition: "Partition") -> None:
        """Handle a moved high watermark, lost leadership or deletion."""


@dataclass(slots=True, kw_only=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        turn: done when the newest inspected batch is appended or refused.
        waiters: called in FIFO order, see `Waiter.look_at`.
    """

    topic: str
    index: int
    topic_id: UUID
    log: PartitionLog
    state: PartitionState
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    waiters: dict[Waiter, None] = field(default_factory=dict)
    complained: bool = False
    turn: "asyncio.Future[None] | None" = None
    counters: PartitionCounters = field(default_factory=PartitionCounters)

    @classmethod
    def opened(cls, *, topic: str, index: int, topic_id: UUID, log: PartitionLog, node_id: int) -> "Partition":
        state = PartitionState(
            node_id=node_id,
            log_end_offset=log.end_offset,
            flushed_offset=log.flushed_offset,
            high_watermark=log.flushed_offset,
        )
        partition = cls(topic=topic, index=index, topic_id=topic_id, log=log, state=state)
        state.transactions_restored(log.first_unstable_offset)
        partition.reconfigured()
        return partition

    # What holds now

    @property
    def high_watermark(self) -> int:
        """End offset for consumers (exclusive)."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """End offset for isolation.level=read_committed (exclusive)."""
        return max(self.state.last_stable_offset, self.log.start_offset)

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client with another leader epoch (KIP-320); -1 skips the check.

        As in Kafka after a restart; librdkafka's `list_offsets` keeps the old epoch until `list_topics`.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        current = self.state.leader_epoch
        if epoch < 0 or epoch == current:
            return
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_append(self, acks: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS if `acks` is impossible."""
        if self.state.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and self.state.under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.state.isr)} replicas are in sync, min.insync.replicas={self.state.min_isr} are needed",
            )

    def damaged(self, problem: Exception) -> ErrorCode:
        """Return the error code for a failed read; log it once."""
        if not self.complained:
            self.complained = True
            logger.error("partition %s-%d cannot be read: %s", self.topic, self.index, problem)
        return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(problem, OSError) else ErrorCode.CORRUPT_MESSAGE

    # What happens to it

    def registered(self, partition: PartitionImage, now_ms: int) -> None:
        self._carry_out(self.state.registered(partition, now_ms))

    def reconfigured(self) -> None:
        config = self.log.config
        self._carry_out(
            self.state.configured(written_counts=config.durability != "flush", min_isr=config.min_insync_replicas)
        )

    def appended(self, info: AppendInfo) -> None:
        if info.began:
            self.state.transaction_began(info.first_offset)
        elif info.ended is not None:
            ended = info.ended
            self.state.transaction_ended(ended.first_offset, ended.last_offset, self.log.first_unstable_offset)
        effects = self.state.appended(info.last_offset + 1)
        if effects:
            self._carry_out(effects)

    def flushed(self, problem: KafkaError | None) -> None:
        """A sync of the log ended, or failed for good."""
        if problem is not None:
            self.acknowledgements.fail(problem)
        else:
            self._carry_out(self.state.flushed(self.log.flushed_offset))

    def wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.look_at(self)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if effect is Effect.ACKNOWLEDGE:
                self.acknowledgements.complete(self.state)
            elif effect is Effect.HIGH_WATERMARK_MOVED:
                if self.waiters:
                    self.wake()
            else:
                assert effect is Effect.LEADERSHIP_LOST, f"one node has no controller to ask for {effect}"
                self.acknowledgements.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                self.wake()
