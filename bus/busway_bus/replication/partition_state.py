"""What is acknowledged, readable and stable in one partition: its role, epochs, in-sync replicas and offsets.

What lives here: the rules by which the high watermark moves, on a leader and on a follower, as one pure machine: events in, effects
out. What does not: the log, whoever waits, the network (`partition`), and times, which come in. A single node is an ISR of one, and
its own flush is what a follower's fetch is elsewhere: `durability` only decides which of its offsets counts.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from busway_bus.kernel.transitions import Table
from busway_bus.metadata.image import PartitionImage
from busway_bus.replication.isr import AlterPartition, FollowerState, may_enter, without_lagging

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
NO_EPOCH: Final = -1


class Role(Enum):
    """What this node is for a partition.

    NONE: nothing of it was read in the metadata yet. Exits: the partition's first record.
    LEADER: takes records in, counts its followers, moves the high watermark. Exits: a record that names another leader.
    FOLLOWER: copies, and takes the high watermark from its leader. Exits: a record that names this node.
    """

    NONE = auto()
    LEADER = auto()
    FOLLOWER = auto()


class Event(Enum):
    """What not every role takes; what becomes of the log itself is told in all of them."""

    LEADS = auto()
    FOLLOWS = auto()
    FOLLOWER_FETCHED = auto()
    ISR_ANSWERED = auto()
    TIME_PASSED = auto()
    LEADER_TOLD = auto()


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
        (Role.FOLLOWER, Event.LEADER_TOLD): Role.FOLLOWER,
        (Role.FOLLOWER, Event.ISR_ANSWERED): Role.FOLLOWER,  # asked for as the leader that it is no more
        (Role.FOLLOWER, Event.TIME_PASSED): Role.FOLLOWER,
    },
)
"""A pair that is missing is a mistake of this broker: fetches of followers, say, are refused before they come here."""


class Effect(Enum):
    """What follows from an event, beside `AlterPartition`.

    ACKNOWLEDGE: more may be acknowledged (`PartitionState.may_acknowledge`).
    HIGH_WATERMARK_MOVED: more may be read.
    LEADERSHIP_LOST: whoever waits for an acknowledgement has to ask the new leader.
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
        node_id: this node.
        written_counts: whether what is written counts as this replica's, and not only what is flushed (`durability`).
        min_isr: with fewer in-sync replicas nothing more is committed (min.insync.replicas, KIP-966).
        role, leader_epoch, partition_epoch, replicas, isr: as the newest record of the partition says.
        leader_epoch_start: where the log ended when this node began to lead in this epoch.
        log_end_offset: the offset that the next record gets.
        flushed_offset: everything below it is on this node's disk.
        high_watermark: everything below it is committed: on all in-sync replicas, and readable.
        first_open_offset: where the oldest transaction begins that has not ended, None when all have.
        first_unstable_offset: where the oldest transaction begins that has not ended, or whose end is not committed yet, None when
            there is none.
        ending: (offset of the marker, first offset) of transactions whose end is not committed yet, in the order of the markers.
        under_min_isr: whether there are too few in-sync replicas to commit anything: of fewer replicas than `min_isr`, all have to be.
        in_flight: the ISR that the controller has not answered yet.
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
        """The end of this replica's log, as far as it counts."""
        return self.log_end_offset if self.written_counts else self.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here readers with isolation.level=read_committed read (KIP-98): no open transaction, and committed."""
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.first_unstable_offset, self.high_watermark)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Who may be in the ISR: the controller may have done what it was asked for and not answered yet."""
        return frozenset(self.isr if self.in_flight is None else (*self.isr, *self.in_flight.isr))

    def acknowledged_offset(self, acks: int) -> int:
        """Everything below it may be acknowledged to a producer with these `acks`.

        Where a topic was made safer, the high watermark may be ahead of what counts; nothing is acknowledged again because of that.
        """
        local_end_offset = self.log_end_offset if self.written_counts else self.flushed_offset
        return min(self.high_watermark, local_end_offset) if acks == ACKS_ALL else local_end_offset

    def may_acknowledge(self, last_offset: int, acks: int) -> bool:
        """Whether a batch that ends with `last_offset` may be acknowledged."""
        return self.acknowledged_offset(acks) > last_offset

    # The log

    def appended(self, log_end_offset: int) -> Effects:
        """Records were written."""
        self.log_end_offset = log_end_offset
        return self._advance() or _ACKNOWLEDGE if self.written_counts else NOTHING

    def flushed(self, flushed_offset: int) -> Effects:
        """Records are on disk; a flush of what was truncated meanwhile counts for what is left."""
        flushed_offset = min(flushed_offset, self.log_end_offset)
        if flushed_offset <= self.flushed_offset:
            return NOTHING
        self.flushed_offset = flushed_offset
        return NOTHING if self.written_counts else self._local_end_moved()

    def truncated(self, log_end_offset: int) -> Effects:
        """A follower cut off what its leader does not have. Below the high watermark only an unclean election makes it do so."""
        assert self.role is not Role.LEADER, "a leader's log is never truncated"
        self.log_end_offset = min(self.log_end_offset, log_end_offset)
        self.flushed_offset = min(self.flushed_offset, log_end_offset)
        self.high_watermark = min(self.high_watermark, log_end_offset)
        while self.ending and self.ending[-1][0] >= log_end_offset:
            self.ending.pop()
        return NOTHING

    def configured(self, *, written_counts: bool, min_isr: int = 1) -> Effects:
        """The topic's settings are these from now on; what could be read stays readable."""
        self.written_counts, self.min_isr = written_counts, min_isr
        self._count_isr()
        return self._local_end_moved()

    def transactions_restored(self, first_open_offset: int | None) -> None:
        """A log was opened, or cut: the oldest transaction in it that has no end begins here, or all have."""
        self.first_open_offset = first_open_offset
        self._find_unstable()

    def transaction_began(self, first_offset: int) -> None:
        """A transaction begins with the batch that is `appended` next."""
        if self.first_open_offset is None:
            self.first_open_offset = first_offset
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def transaction_ended(self, first_offset: int, marker_offset: int, first_open_offset: int | None) -> None:
        """The transaction that begins at `first_offset` ends with the marker that is `appended` next; readers of committed records
        hear of it when the marker is committed itself. `first_open_offset` is where the oldest of the others begins."""
        self.first_open_offset = first_open_offset
        self.ending.append((marker_offset, first_offset))

    def _find_unstable(self) -> None:
        unstable = [first_offset for _, first_offset in self.ending]
        if self.first_open_offset is not None:
            unstable.append(self.first_open_offset)
        self.first_unstable_offset = min(unstable, default=None)

    # The metadata

    def registered(self, partition: PartitionImage, now_ms: int) -> Effects:
        """The metadata says this of the partition; what is older than what is known changes nothing."""
        if partition.partition_epoch < self.partition_epoch or partition.leader_epoch < self.leader_epoch:
            return NOTHING
        return (
            self.became_leader(partition, now_ms)
            if partition.leader == self.node_id
            else self.became_follower(partition)
        )

    def became_leader(self, partition: PartitionImage, now_ms: int) -> Effects:
        """This node leads, in a new epoch or with another ISR."""
        new = self.role is not Role.LEADER or partition.leader_epoch > self.leader_epoch
        self._moved_to(Event.LEADS, partition)
        if new:
            self.leader_epoch_start = self.log_end_offset
            self.followers = {}
        self.followers = {
            replica: self.followers.get(replica) or self._unheard(replica, now_ms)
            for replica in partition.replicas
            if replica != self.node_id
        }
        return self._local_end_moved()

    def became_follower(self, partition: PartitionImage) -> Effects:
        """Another node leads, or none does."""
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

    def _unheard(self, replica: int, now_ms: int) -> FollowerState:
        """A follower that has not fetched from this leader yet: one in the ISR has as long to do so as one that kept up until now."""
        caught_up_ms = now_ms if replica in self.isr else 0
        return FollowerState(caught_up_ms=caught_up_ms, fetched_ms=0, leader_end_offset=self.log_end_offset)

    # The other replicas

    def fetched(self, replica: int, offset: int, now_ms: int) -> Effects:
        """A follower asks for what comes from `offset` on. Whoever calls has checked that it is one of the `followers`."""
        self._take(Event.FOLLOWER_FETCHED)
        follower = self.followers[replica]
        follower.fetched(offset, self.log_end_offset, now_ms)
        effects = self._advance()
        if replica in self.maximal_isr or self.in_flight is not None:
            return effects
        if may_enter(follower, high_watermark=self.high_watermark, leader_epoch_start=self.leader_epoch_start):
            return (*effects, self._ask((*self.isr, replica)))
        return effects

    def time_passed(self, now_ms: int, lag_max_ms: int) -> Effects:
        """Look whether a follower has been behind for longer than `lag_max_ms`; to be called twice within that time."""
        self._take(Event.TIME_PASSED)
        if self.role is not Role.LEADER or self.in_flight is not None:
            return NOTHING
        isr = without_lagging(
            self.isr, self.followers, leader_end_offset=self.log_end_offset, now_ms=now_ms, lag_max_ms=lag_max_ms
        )
        return NOTHING if len(isr) == len(self.isr) else (self._ask(isr),)

    def isr_altered(self, answer: AlterPartition) -> Effects:
        """The controller has written this ISR; its record may have come before its answer."""
        self._take(Event.ISR_ANSWERED)
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch <= self.partition_epoch:
            return NOTHING
        self.isr, self.partition_epoch, self.in_flight = answer.isr, answer.partition_epoch, None
        self._count_isr()
        return self._advance()

    def isr_refused(self, request: AlterPartition, *, undone: bool) -> Effects:
        """The controller did not answer a request with an ISR.

        Args:
            undone: it has not done it, and will not; otherwise it may have, and the next record of the partition will tell.
        """
        self._take(Event.ISR_ANSWERED)
        if self.in_flight is not request or not undone:
            return NOTHING
        self.in_flight = None
        return self._advance()

    def leader_told(self, high_watermark: int) -> Effects:
        """The leader's high watermark, from its answer to a fetch: below it everything is committed that this replica has."""
        self._take(Event.LEADER_TOLD)
        return self._raise(min(high_watermark, self.log_end_offset))

    def _ask(self, isr: tuple[int, ...]) -> AlterPartition:
        self.in_flight = AlterPartition(leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch, isr=isr)
        return self.in_flight

    # The high watermark

    def _take(self, event: Event) -> None:
        self.role = TRANSITIONS.after(self.role, event)

    def _local_end_moved(self) -> Effects:
        return self._advance() or _ACKNOWLEDGE

    def _advance(self) -> Effects:
        """Commit what all in-sync replicas have, and those that may be in sync already."""
        if self.role is not Role.LEADER or self.under_min_isr:
            return NOTHING
        committed = self.log_end_offset if self.written_counts else self.flushed_offset
        if self.followers:
            for replica in self.maximal_isr:
                if replica in self.followers:
                    committed = min(committed, self.followers[replica].log_end_offset)
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
