"""Changes of one partition: its leader, its ISR and its eligible leader replicas.

Here: the record that changes a partition to a target, as Kafka's `PartitionChangeBuilder`: elections, eligible leader
replicas (KIP-966), ends of reassignments, leader recovery (KIP-704). Pure.
Not here: which partitions change (`leaders`, `isr_changes`), the settings of a topic (`topic_settings`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from busway_bus.metadata.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, UNASSIGNED, PartitionImage
from busway_bus.metadata.records import PartitionChangeRecord


class Election(Enum):
    """How a leader is elected.

    PREFERRED: the first replica, if it may lead.
    ONLINE: the present leader stays if it may lead; else the first replica that may.
    UNCLEAN: as ONLINE; without any, the first replica that is alive, even if it lacks committed records.
    """

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A target for one partition; None keeps what the partition has.

    Attributes:
        acceptable: whether a broker may lead at all: it is active, and its log is online.
        min_isr: the topic's min.insync.replicas, at most its replication factor.
        elr_enabled: whether the cluster has eligible leader replicas; without them the last ISR stays.
        unclean_shutdown: brokers whose logs may have lost committed records: they leave ISR and ELR.
        directories: new directories by broker.
        default_directory: directory of a new replica.
    """

    topic_id: UUID
    partition_index: int
    partition: PartitionImage
    acceptable: Callable[[int], bool]
    min_isr: int
    elr_enabled: bool
    election: Election = Election.ONLINE
    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    unclean_shutdown: Collection[int] = ()
    directories: Mapping[int, UUID] = field(default_factory=dict)
    default_directory: Callable[[int], UUID] = lambda broker: UNASSIGNED

    def record(self) -> PartitionChangeRecord | None:
        """Return the record that reaches the target; None if nothing changes."""
        target = _Target(self)
        target.complete_reassignment()
        target.derive_elr()
        record = PartitionChangeRecord(partition_id=self.partition_index, topic_id=self.topic_id)
        unclean = target.elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(self.partition.replicas) <= set(target.replicas):
            record.leader = self.partition.leader  # a removed replica must notice: a new epoch of the same leader
        target.write_elr(record, unclean=unclean)
        if not unclean and (target.isr or self.elr_enabled) and target.isr != self.partition.isr:
            record.isr = list(target.isr)
        target.write_last_leader(record)
        target.write_assignment(record)
        if self.recovery_state is not None and self.recovery_state != self.partition.recovery_state:
            record.leader_recovery_state = self.recovery_state
        return record if _changes(record) else None


class _Target:
    """The partition as it will be; a step of `PartitionChange.record` changes it."""

    def __init__(self, change: PartitionChange) -> None:
        before = self.before = change.partition
        self.change = change
        self.isr = before.isr if change.isr is None else tuple(change.isr)
        self.replicas = before.replicas if change.replicas is None else tuple(change.replicas)
        self.removing = before.removing if change.removing is None else tuple(change.removing)
        self.adding = before.adding if change.adding is None else tuple(change.adding)
        self.elr = before.elr

    def complete_reassignment(self) -> None:
        """End a reassignment when all new replicas are in sync; one to fewer replicas when all that remain are."""
        if not self.removing and not self.adding:
            return
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if self.removing and not (isr and replicas):
            return
        shrinks = len(self.adding) < len(self.removing)
        if set(self.adding) <= set(isr) and (not shrinks or set(replicas) <= set(isr)):
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, (), ()

    def derive_elr(self) -> None:
        """Keep replicas that leave an ISR below its minimum: they have everything that is committed."""
        if not self.change.elr_enabled:
            return
        if len(self.isr) >= self.change.min_isr:
            self.elr = ()
            return
        left = {*self.elr, *self.before.isr} - {*self.isr, *self.change.unclean_shutdown}
        self.elr = tuple(sorted(left))

    def elect(self, record: PartitionChangeRecord) -> bool:
        """Set the leader if it changes; return whether its election is unclean."""
        leader, unclean = self._leader()
        if leader == self.before.leader:
            return False
        if leader in self.elr:
            self.isr = (leader,)
            self.elr = tuple(replica for replica in self.elr if replica != leader)
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.before.recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        return unclean

    def _leader(self) -> tuple[int, bool]:
        """Return the new leader, NO_LEADER without one, and whether it may lack committed records."""
        candidates = [self.before.leader, *self.replicas]
        if self.change.election is Election.PREFERRED:
            candidates = [self.replicas[0], self.before.leader, *self.replicas[1:]]
        for replica in candidates:
            if self._may_lead(replica):
                return replica, False
        last = self.before.last_known_elr
        no_eligible = self.change.elr_enabled and not self.isr and not self.elr
        if no_eligible and len(last) == 1 and self.change.acceptable(last[0]):
            return last[0], True
        if self.change.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.change.acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead(self, replica: int) -> bool:
        return replica in (self.isr or self.elr) and self.change.acceptable(replica)

    def write_elr(self, record: PartitionChangeRecord, *, unclean: bool) -> None:
        if unclean or not self.change.elr_enabled:
            self.elr = ()
        if self.elr != self.before.elr:
            record.eligible_leader_replicas = list(self.elr)

    def write_last_leader(self, record: PartitionChangeRecord) -> None:
        """Note the leader when the partition becomes leaderless, and forget it with the next one."""
        before = self.before
        if not self.change.elr_enabled:
            return
        if record.leader == NO_LEADER and before.leader != NO_LEADER and not before.last_known_elr:
            record.last_known_elr = [before.leader]
        elif record.leader >= 0 and before.last_known_elr:
            record.last_known_elr = []

    def write_assignment(self, record: PartitionChangeRecord) -> None:
        before, change = self.before, self.change
        if change.directories or self.replicas != before.replicas:
            directories = [
                change.directories.get(replica) or before.directory_on(replica) or change.default_directory(replica)
                for replica in self.replicas
            ]
            if directories != [before.directory_on(replica) for replica in before.replicas]:
                record.directories = directories
        if self.replicas != before.replicas:
            record.replicas = list(self.replicas)
        if self.removing != before.removing:
            record.removing_replicas = list(self.removing)
        if self.adding != before.adding:
            record.adding_replicas = list(self.adding)


def _changes(record: PartitionChangeRecord) -> bool:
    return record != PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id)
