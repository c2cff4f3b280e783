"""A partition on this node: its log, state and waiting clients.

Here: events of the log to the state, and their effects.
Not here: the high watermark (`partition_state`), files and threads (`log`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from busway_bus.kernel.counters import PartitionCounters
from busway_bus.log.partition_log import AppendInfo, PartitionLog
from busway_bus.metadata.image import NO_LEADER, PartitionImage
from busway_bus.replication.acknowledgements import Acknowledgements
from busway_bus.replication.isr import AlterPartition, FollowerFetch
from busway_bus.replication.partition_state import ACKS_ALL, Effect, Effects, PartitionState, Role
from busway_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("busway.replication")


class Waiter(Protocol):
    """Listener for readable records of a partition."""

    def look_at(self, partition: "Partition") -> None:
        """Handle a moved high watermark, lost leadership or deletion."""


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        turn: done when the newest inspected batch is appended or refused.
        waiters: called in FIFO order, see `Waiter.look_at`.
        followers_waiters: fetches of followers, called when the log has grown as well.
        leader: broker id of the leader, by the partition's newest record.
        alter_isr: asks the controller for another ISR.
        cutting: ends when the log of this follower was cut; None while it is not.
        unfinished: repeats a cut that failed on the disk; also set while it runs.
    """

    topic: str
    index: int
    topic_id: UUID
    log: PartitionLog
    state: PartitionState
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    waiters: dict[Waiter, None] = field(default_factory=dict)
    followers_waiters: dict[Waiter, None] = field(default_factory=dict)
    leader: int = NO_LEADER
    alter_isr: "Callable[[Partition, AlterPartition], None]"
    complained: bool = False
    cutting: "asyncio.Task[None] | None" = None
    unfinished: "Callable[[], Awaitable[None]] | None" = None
    turn: "asyncio.Future[None] | None" = None
    counters: PartitionCounters = field(default_factory=PartitionCounters)
    _start_waits: "list[asyncio.Future[None]]" = field(default_factory=list)

    @classmethod
    def opened(
        cls,
        *,
        topic: str,
        index: int,
        topic_id: UUID,
        log: PartitionLog,
        node_id: int,
        high_watermark: int,
        alter_isr: "Callable[[Partition, AlterPartition], None]",
    ) -> "Partition":
        """Wrap an opened log; `high_watermark` is the last checkpoint's, which is within the log then."""
        state = PartitionState(
            node_id=node_id,
            log_end_offset=log.end_offset,
            flushed_offset=log.flushed_offset,
            high_watermark=min(max(high_watermark, log.start_offset), log.flushed_offset),
        )
        partition = cls(topic=topic, index=index, topic_id=topic_id, log=log, state=state, alter_isr=alter_isr)
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
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER until a cut has succeeded.
        """
        if self.unfinished is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        current = self.state.leader_epoch
        if epoch < 0 or epoch == current:
            return
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def leads(self) -> bool:
        return self.state.role is Role.LEADER

    def check_leader(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER."""
        if self.state.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

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
        epoch_before = self.state.leader_epoch
        effects = self.state.registered(partition, now_ms)
        if partition.partition_epoch == self.state.partition_epoch:
            self.leader = partition.leader
        several = len(self.state.replicas) > 1
        self.log.committed = self._high_watermark if several else None
        if several and self.leads and self.state.leader_epoch > epoch_before:
            self.log.begin_epoch(self.state.leader_epoch)
        self._carry_out(effects)
        self._end_start_waits()
        if self.state.leader_epoch > epoch_before:
            for waiter in tuple(self.followers_waiters):
                waiter.look_at(self)

    def _high_watermark(self) -> int:
        return self.state.high_watermark

    def fetched(self, fetch: FollowerFetch, offset: int, log_start_offset: int) -> None:
        """Note the fetch of a follower that was let in by `check_follower`."""
        follower = self.state.followers[fetch.replica]
        if follower.log_start_offset != log_start_offset:
            follower.log_start_offset = log_start_offset
            self._end_start_waits()
        effects = self.state.fetched(
            fetch.replica,
            offset,
            fetch.now_ms,
            broker_epoch=fetch.broker_epoch,
            eligible=fetch.eligible,
            lag_max_ms=fetch.lag_max_ms,
        )
        if effects:
            self._carry_out(effects)

    async def follower_started(self) -> None:
        """Wait until a follower's log has another start offset, or the partition changes."""
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_waits.append(wait)
        await wait

    def _end_start_waits(self) -> None:
        waits, self._start_waits = self._start_waits, []
        for wait in waits:
            if not wait.done():
                wait.set_result(None)

    def check_follower(self, replica: int, broker_epoch: int) -> None:
        """Refuse a fetch of a broker that is no follower here, or of a process that another has replaced.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH.
        """
        self.check_leader()
        follower = self.state.followers.get(replica)
        if follower is None:  # the metadata here, or that of the follower, is behind: it tries again
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_epoch < follower.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def ineligible(self, replica: int) -> None:
        """A broker is fenced or shutting down."""
        self._carry_out(self.state.ineligible(replica))

    def time_passed(self, now_ms: int, lag_max_ms: int) -> None:
        if self.state.followers:
            self._carry_out(self.state.time_passed(now_ms, lag_max_ms))

    def isr_altered(self, answer: AlterPartition, request: AlterPartition) -> None:
        self._carry_out(self.state.isr_altered(answer, request))

    def isr_refused(self, request: AlterPartition, *, undone: bool) -> None:
        self._carry_out(self.state.isr_refused(request, undone=undone))

    def leader_high_watermark(self, high_watermark: int) -> None:
        effects = self.state.leader_high_watermark(high_watermark)
        if effects:
            self._carry_out(effects)

    def truncated(self) -> None:
        """The log was truncated."""
        self._carry_out(self.state.truncated(self.log.end_offset))
        self.state.transactions_restored(self.log.first_unstable_offset)

    def restarted(self) -> None:
        """All records were removed."""
        self._carry_out(self.state.restarted(self.log.end_offset))
        self.state.transactions_restored(None)

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
        if self.followers_waiters:
            for waiter in tuple(self.followers_waiters):
                waiter.look_at(self)

    def flushed(self, problem: KafkaError | None) -> None:
        """A sync of the log ended, or failed for good."""
        if problem is not None:
            self.acknowledgements.fail(problem)
        else:
            self._carry_out(self.state.flushed(self.log.flushed_offset))

    async def uncut(self) -> None:
        """Wait until nothing cuts the log."""
        while self.cutting is not None:
            await asyncio.wait([self.cutting])

    async def finish_cut(self) -> None:
        """Wait as `uncut`; repeat a cut that failed.

        Raises:
            OSError, KafkaError: it failed again.
        """
        await self.uncut()
        if self.unfinished is not None:
            await self.unfinished()

    def wake(self) -> None:
        self._end_start_waits()
        for waiter in (*self.waiters, *self.followers_waiters):
            waiter.look_at(self)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if effect is Effect.ACKNOWLEDGE:
                self.acknowledgements.complete(self.state)
            elif effect is Effect.HIGH_WATERMARK_MOVED:
                if self.waiters:
                    for waiter in tuple(self.waiters):
                        waiter.look_at(self)
            elif effect is Effect.LEADERSHIP_LOST:
                self.acknowledgements.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                self.wake()
            else:
                assert isinstance(effect, AlterPartition)
                self.alter_isr(self, effect)
