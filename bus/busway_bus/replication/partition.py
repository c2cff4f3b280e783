"""A partition as this node leads it: its log, its epoch, and who waits for more of it.

What lives here: the high watermark on one node, which follows what is on disk, or what is written where the topic trades safety
for speed, and never falls back; and the waiters. What does not: files and threads.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from busway_bus.log.partition_log import PartitionLog
from busway_protocol.errors import ErrorCode, KafkaError

log = logging.getLogger("busway.replication")


@dataclass(slots=True, kw_only=True, eq=False)
class Partition:
    """One led partition.

    Attributes:
        high_watermark: the offset up to which consumers may read.
        turn: done when the last batch that came is appended or refused; None when none is being looked through.
    """

    topic: str
    number: int
    topic_id: UUID
    log: PartitionLog
    leader_epoch: int
    waiters: set[Callable[[], None]] = field(default_factory=set)
    complained: bool = False
    high_watermark: int = field(init=False)
    turn: "asyncio.Future[None] | None" = None

    def __post_init__(self) -> None:
        """What was there when the log was opened is on disk."""
        self.high_watermark = self.log.flushed_offset

    def damaged(self, problem: Exception) -> ErrorCode:
        """What a client is told whose read met damage on disk; the log gets one line for each partition."""
        if not self.complained:
            self.complained = True
            log.error("partition %s-%d cannot be read: %s", self.topic, self.number, problem)
        return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(problem, OSError) else ErrorCode.CORRUPT_MESSAGE

    def advance(self) -> None:
        """Let consumers read what the topic's durability allows by now; what they could read before stays readable."""
        reached = self.log.flushed_offset if self.log.config.durability == "flush" else self.log.end_offset
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.wake()

    def wake(self) -> None:
        """Tell everyone who waits that there may be more."""
        for waiter in tuple(self.waiters):
            waiter()

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader epoch (KIP-320); -1 is one that does not care.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code)
