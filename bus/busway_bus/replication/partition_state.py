"""State of one partition: its role, epochs, in-sync replicas and offsets.

Here: the rules of the high watermark, as a pure state machine: events in, effects out.
Not here: the log and waiting clients (`partition`). On a single node, an ISR of one, `durability` decides whether
written or flushed offsets count.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from busway_bus.kernel.transitions import Table
from busway_bus.metadata.image import PartitionImage
from busway_bus.replication.isr import UNKNOWN_EPOCH, AlterPartition, FollowerState, may_enter, without_lagging

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
NO_EPOCH: Final = -1
LAG_MAX_MS: Final = 30_000
"""Kafka's default of replica.lag.time.max.ms."""


class Role(Enum):
    """Role of this node for a partition.

    NONE: no metadata record of the partition was read yet. Exits: the partition's first record.
    LEADER: appends records, tracks followers, moves the high watermark. Exits: a record with another leader.
    FOLLOWER: copies the leader's log and high watermark. Exits: a record with this node as leader.
    """

    NONE = auto()
    LEADER = auto()
    FOLLOWER = auto()


class Event(Enum):
    """Events that only some roles accept. Events of the log itself are accepted in every role."""

    LEADS = auto()
    FOLLOWS = auto()
    FOLLOWER_FETCHED = auto()
    ISR_ANSWERED = auto()
    TIME_PASSED = auto()
    LEADER_HIGH_WATERMARK = auto()


TRANSITIONS: Final[Table[Role, Event, Role]] = Table(
    "a partition in the role",
    {
        (Role.NONE, Event.LEADS): Role.LEADER,
        (Role.NONE, Event.FOLLOWS): Role.FOLLOWER,
        (Role.LEADER, Event.LEADS): Role.LEADER,
        (Role.LEADER, Event.FOLLOWS): Role.FOLLOWER,
        (Role.LEADER, Event.FOLLOWER_FETCHED): Role.LEADER,
        (Role.LEADER, Event.ISR_ANSWERED): Role.LEADER,
        (Role.LEADER, Event.TIME_PASSED): Role.LEADER,
        (Role.FOLLOWER, Event.LEADS): Role.LEADER,
        (Role.FOLLOWER, Event.FOLLOWS): Role.FOLLOWER,
        (Role.FOLLOWER, Event.LEADER_HIGH_WATERMARK): Role.FOLLOWER,
        (Role.FOLLOWER, Event.ISR_ANSWERED): Role.FOLLOWER,  # requested while this node was the leader
        (Role.FOLLOWER, Event.TIME_PASSED): Role.FOLLOWER,
    },
)
"""A missing pair is a bug: fetches to a non-leader, for example, are refused earlier."""


class Effect(Enum):
    """Consequences of an event, beside `AlterPartition`.

    ACKNOWLEDGE: more may be acknowledged (`PartitionState.may_acknowledge`).
    HIGH_WATERMARK_MOVED: more may be read.
    LEADERSHIP_LOST: pending producers must retry with the new leader.
    """

    ACKNOWLEDGE = auto()
    HIGH_WATERMARK_MOVED = auto()
    LEADERSHIP_LOST = auto()


Effects: TypeAlias = tuple[Effect | AlterPartition, ...]
NOTHING: Final[Effects] = ()
_ACKNOWLEDGE: Final[Effects] = (Effect.ACKNOWLEDGE,)
_MOVED: Final[Effects] = (Effect.ACKNOWLEDGE, Effect.HIGH_WATERMARK_MOVED)


@dataclass(slots=True, kw_only=True, eq=False)
class PartitionState:
    """One partition on one node.

    Attributes:
        written_counts: written records count, not only flushed ones (`durability`).
        min_isr: fewer in-sync replicas commit nothing (min.insync.replicas, KIP-966).
        role, leader_epoch, partition_epoch, replicas, isr: from the partition's newest record.
        leader_epoch_start: log end offset at the start of this leader epoch.
        flushed_offset: end of what is on this node's disk.
        high_watermark: end of what all in-sync replicas have.
        first_open_offset: first offset of the oldest transaction without a marker.
        first_unstable_offset: first offset of the oldest transaction without a committed marker.
        ending: (marker offset, first offset) of transactions with an uncommitted marker, in order.
        under_min_isr: whether the ISR is too small to commit. With fewer replicas than `min_isr`, all must be in sync.
        in_flight: the pending AlterPartition request.
    """

    node_id: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    written_counts: bool = False
    min_isr: int = 1
    role: Role = Role.NONE
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader_epoch_start: int = 0
    first_unstable_offset: int | None = None
    first_open_offset: int | None = None
    ending: deque[tuple[int, int]] = field(default_factory=deque)
    under_min_isr: bool = False
    in_flight: AlterPartition | None = None
    followers: dict[int, FollowerState] = field(default_factory=dict)

    # What holds now

    @property
    def local_end_offset(self) -> int:
        """End of this replica's log, see `written_counts`."""
        return self.log_end_offset if self.written_counts else self.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """End of isolation.level=read_committed (KIP-98): committed, and below open transactions."""
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.first_unstable_offset, self.high_watermark)

    def acknowledged_offset(self, acks: int) -> int:
        """End offset of the records acknowledged with `acks`.

        The lower of high watermark and flushed offset, which may be behind after a switch to a stricter `durability`.
        """
        local_end_offset = self.log_end_offset if self.written_counts else self.flushed_offset
        return min(self.high_watermark, local_end_offset) if acks == ACKS_ALL else local_end_offset

    def may_acknowledge(self, last_offset: int, acks: int) -> bool:
        return self.acknowledged_offset(acks) > last_offset

    # The log

    def appended(self, log_end_offset: int) -> Effects:
        self.log_end_offset = log_end_offset
        return self._advance() or _ACKNOWLEDGE if self.written_counts else NOTHING

    def flushed(self, flushed_offset: int) -> Effects:
        """Records are on disk. Offsets truncated meanwhile are ignored."""
        flushed_offset = min(flushed_offset, self.log_end_offset)
        if flushed_offset <= self.flushed_offset:
            return NOTHING
        self.flushed_offset = flushed_offset
        return NOTHING if self.written_counts else self._local_end_moved()

    def truncated(self, log_end_offset: int) -> Effects:
        """A follower truncated its log; below the high watermark only in an unclean election."""
        assert self.role is not Role.LEADER, "a leader's log is never truncated"
        self.log_end_offset = min(self.log_end_offset, log_end_offset)
        self.flushed_offset = min(self.flushed_offset, log_end_offset)
        self.high_watermark = min(self.high_watermark, log_end_offset)
        while self.ending and self.ending[-1][0] >= log_end_offset:
            self.ending.pop()
        return NOTHING

    def restarted(self, offset: int) -> Effects:
        """A follower removed its log, which begins at `offset`, in the committed part of the leader's."""
        assert self.role is not Role.LEADER, "a leader's log is never removed"
        self.log_end_offset = self.flushed_offset = self.high_watermark = offset
        self.ending.clear()
        return NOTHING

    def configured(self, *, written_counts: bool, min_isr: int = 1) -> Effects:
        """Settings of the topic changed. The high watermark does not fall."""
        self.written_counts, self.min_isr = written_counts, min_isr
        self._count_isr()
        return self._local_end_moved()

    def transactions_restored(self, first_open_offset: int | None) -> None:
        """A log was opened or truncated."""
        self.first_open_offset = first_open_offset
        self._find_unstable()

    def transaction_began(self, first_offset: int) -> None:
        """A transaction begins with the batch that is `appended` next."""
        if self.first_open_offset is None:
            self.first_open_offset = first_offset
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def transaction_ended(self, first_offset: int, marker_offset: int, first_open_offset: int | None) -> None:
        """The next `appended` marker ends the transaction at `first_offset`.

        It stays unstable until its marker is committed. `first_open_offset`: start of the oldest other one.
        """
        self.first_open_offset = first_open_offset
        self.ending.append((marker_offset, first_offset))

    def _find_unstable(self) -> None:
        unstable = [first_offset for _, first_offset in self.ending]
        if self.first_open_offset is not None:
            unstable.append(self.first_open_offset)
        self.first_unstable_offset = min(unstable, default=None)

    # The metadata

    def registered(self, partition: PartitionImage, now_ms: int) -> Effects:
        """Apply the metadata; older epochs are ignored."""
        if partition.partition_epoch < self.partition_epoch or partition.leader_epoch < self.leader_epoch:
            return NOTHING
        return (
            self.became_leader(partition, now_ms)
            if partition.leader == self.node_id
            else self.became_follower(partition)
        )

    def became_leader(self, partition: PartitionImage, now_ms: int) -> Effects:
        new = self.role is not Role.LEADER or partition.leader_epoch > self.leader_epoch
        self._moved_to(Event.LEADS, partition)
        if new:
            self.leader_epoch_start = self.log_end_offset
            self.followers = {}
        self.followers = {
            replica: self.followers.get(replica) or self._before_first_fetch(replica, now_ms)
            for replica in partition.replicas
            if replica != self.node_id
        }
        return self._local_end_moved()

    def became_follower(self, partition: PartitionImage) -> Effects:
        led = self.role is Role.LEADER
        self._moved_to(Event.FOLLOWS, partition)
        self.followers = {}
        return (Effect.LEADERSHIP_LOST,) if led else NOTHING

    def _moved_to(self, event: Event, partition: PartitionImage) -> None:
        self._take(event)
        self.leader_epoch, self.partition_epoch = partition.leader_epoch, partition.partition_epoch
        self.replicas, self.isr = partition.replicas, partition.isr
        self.in_flight = None
        self._count_isr()

    def _count_isr(self) -> None:
        self.under_min_isr = len(self.isr) < min(self.min_isr, len(self.replicas))

    def _before_first_fetch(self, replica: int, now_ms: int) -> FollowerState:
        """State of a follower before its first fetch. In the ISR it counts as caught up."""
        caught_up_ms = now_ms if replica in self.isr else 0
        return FollowerState(caught_up_ms=caught_up_ms, fetched_ms=0, leader_end_offset=self.log_end_offset)

    # The other replicas

    def fetched(
        self,
        replica: int,
        offset: int,
        now_ms: int,
        *,
        broker_epoch: int = UNKNOWN_EPOCH,
        eligible: bool = True,
        lag_max_ms: int = LAG_MAX_MS,
    ) -> Effects:
        """A follower fetched from `offset`.

        Args:
            eligible: its process is registered with this broker epoch, not fenced and not shutting down.
        """
        self._take(Event.FOLLOWER_FETCHED)
        follower = self.followers[replica]
        before = (follower.log_end_offset, follower.joining)
        follower.fetched(offset, self.log_end_offset, now_ms)
        follower.broker_epoch = broker_epoch
        effects = NOTHING
        if replica not in self.isr and (self.in_flight is None or replica not in self.in_flight.isr):
            follower.joining = eligible and not follower.lags(self.log_end_offset, now_ms, lag_max_ms)
            if (
                eligible
                and self.in_flight is None
                and may_enter(follower, high_watermark=self.high_watermark, leader_epoch_start=self.leader_epoch_start)
            ):
                effects = (self._ask((*self.isr, replica)),)
        return effects if before == (follower.log_end_offset, follower.joining) else (*self._advance(), *effects)

    def ineligible(self, replica: int) -> Effects:
        """A follower's process is fenced or shutting down: the high watermark waits for it only in the ISR."""
        follower = self.followers.get(replica)
        if follower is None or not follower.joining:
            return NOTHING
        follower.joining = False
        return self._advance()

    def time_passed(self, now_ms: int, lag_max_ms: int) -> Effects:
        """Remove lagging followers from the ISR. Call twice per `lag_max_ms`."""
        self._take(Event.TIME_PASSED)
        if self.role is not Role.LEADER or self.in_flight is not None:
            return NOTHING
        effects = NOTHING
        for follower in self.followers.values():
            if follower.joining and follower.lags(self.log_end_offset, now_ms, lag_max_ms):
                follower.joining = False
                effects = self._advance()
        isr = without_lagging(
            self.isr, self.followers, leader_end_offset=self.log_end_offset, now_ms=now_ms, lag_max_ms=lag_max_ms
        )
        return effects if len(isr) == len(self.isr) else (*effects, self._ask(isr))

    def isr_altered(self, answer: AlterPartition, request: AlterPartition | None = None) -> Effects:
        """The controller wrote this ISR; the record may have arrived before.

        An answer with the epoch of its `request` means that the ISR is the wanted one already.
        """
        self._take(Event.ISR_ANSWERED)
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return NOTHING
        if answer.partition_epoch == self.partition_epoch and (request is None or self.in_flight is not request):
            return NOTHING
        self.isr, self.partition_epoch, self.in_flight = answer.isr, answer.partition_epoch, None
        self._count_isr()
        return self._advance()

    def isr_refused(self, request: AlterPartition, *, undone: bool) -> Effects:
        """An AlterPartition request failed.

        Args:
            undone: the controller certainly did not apply it. Otherwise the next record decides.
        """
        self._take(Event.ISR_ANSWERED)
        if self.in_flight is not request or not undone:
            return NOTHING
        self.in_flight = None
        return self._advance()

    def leader_high_watermark(self, high_watermark: int) -> Effects:
        self._take(Event.LEADER_HIGH_WATERMARK)
        return self._raise(min(high_watermark, self.log_end_offset))

    def _ask(self, isr: tuple[int, ...]) -> AlterPartition:
        self.in_flight = AlterPartition(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=isr,
            broker_epochs=tuple(
                self.followers[replica].broker_epoch if replica in self.followers else UNKNOWN_EPOCH for replica in isr
            ),
        )
        return self.in_flight

    # The high watermark

    def _take(self, event: Event) -> None:
        self.role = TRANSITIONS.after(self.role, event)

    def _local_end_moved(self) -> Effects:
        return self._advance() or _ACKNOWLEDGE

    def _advance(self) -> Effects:
        """Commit up to the lowest end of the replicas that are in the ISR, may be in it already, or join it.

        If it did not wait for these, a follower of a busy leader would never have all that is committed.
        """
        if self.role is not Role.LEADER or self.under_min_isr:
            return NOTHING
        committed = self.log_end_offset if self.written_counts else self.flushed_offset
        if self.followers:
            isr, asked = self.isr, () if self.in_flight is None else self.in_flight.isr
            for replica, follower in self.followers.items():
                if follower.log_end_offset < committed and (follower.joining or replica in isr or replica in asked):
                    committed = follower.log_end_offset
        return self._raise(committed)

    def _raise(self, offset: int) -> Effects:
        if offset <= self.high_watermark:
            return NOTHING
        self.high_watermark = offset
        if self.ending and self.ending[0][0] < offset:
            while self.ending and self.ending[0][0] < offset:
                self.ending.popleft()
            self._find_unstable()
        return _MOVED
