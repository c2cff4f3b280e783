"""What must hold of the controllers of a cluster, looked at while they run.

Here: the checks, over what nodes commit, publish, send and answer.
Not here: running them (`cluster`). They see all nodes at once, their disks too, and remember what was ever true.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import from_bytes
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.election_file import election_from_text
from busway_bus.quorum.votes import majority
from busway_protocol.messages.quorum import VoteRequest, VoteResponse
from busway_protocol.records.batch import read_header
from busway_protocol.records.record import decode_records

if TYPE_CHECKING:
    from tests.simulation.quorum.cluster import Controller

ELECTION = "__cluster_metadata-0/quorum-state"


class Violation(AssertionError):
    """Something is not as it must be."""


class Batch(NamedTuple):
    """A batch that was committed."""

    base_offset: int
    next_offset: int
    epoch: int
    content: bytes


class Invariants:
    """The memory of the checks."""

    def __init__(self, controllers: Iterable["Controller"], voters: tuple[int, ...]) -> None:
        self.controllers = tuple(controller for controller in controllers if controller.id in voters)
        self.committed: list[Batch] = []
        self.images: dict[int, ClusterImage] = {0: ClusterImage()}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.answers: dict[int, int] = {}
        self.published = self.installed = 0

    def leads(self, controller: "Controller", epoch: int) -> None:
        """An epoch has one leader."""
        if self.leaders.setdefault(epoch, controller.id) != controller.id:
            raise Violation(f"epoch {epoch} is led by node {self.leaders[epoch]} and by node {controller.id}")

    def loads(self, controller: "Controller", snapshot: SnapshotId) -> None:
        """A snapshot is of committed records, ends at a batch of its epoch, and replaces a log that has less."""
        last = [batch for batch in self.committed if batch.next_offset == snapshot.offset]
        if not last or last[0].epoch != snapshot.epoch:
            raise Violation(f"node {controller.id} installs {snapshot}, and {last} was committed there")
        if snapshot.offset < controller.checked_offset:
            raise Violation(f"node {controller.id} installs {snapshot} and had committed {controller.checked_offset}")
        if (controller.log.start_offset, controller.log.end_offset) != (snapshot.offset, snapshot.offset):
            raise Violation(f"node {controller.id} installs {snapshot}, and its log has other records yet")
        controller.checked_offset = snapshot.offset
        self.installed += 1

    def commits(self, controller: "Controller", offset: int) -> None:
        """What a node calls committed is what all others do, and is on a majority's disks."""
        at = sum(batch.next_offset <= controller.checked_offset for batch in self.committed)
        batches = [bytes(batch) for batch in controller.log.batches(controller.checked_offset)]
        for content in batches:
            header = read_header(content)
            if header.base_offset < controller.checked_offset or header.next_offset > offset:
                continue
            batch = Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, content)
            if at == len(self.committed):
                self._is_first(controller, batch)
            elif self.committed[at] != batch:
                raise Violation(f"node {controller.id} commits {batch}, and {self.committed[at]} was committed there")
            at += 1
        end_offset = self.committed[at - 1].next_offset if at else 0
        if end_offset != offset:
            raise Violation(
                f"node {controller.id} calls {offset} committed, and its log has batches up to {end_offset}"
            )
        controller.checked_offset = offset

    def _is_first(self, controller: "Controller", batch: Batch) -> None:
        if self.committed and self.committed[-1].next_offset != batch.base_offset:
            raise Violation(f"{batch} does not follow on {self.committed[-1]}")
        holders = [other.id for other in self.controllers if other.has_on_disk(batch.content)]
        if len(holders) < majority(len(self.controllers)):
            raise Violation(f"node {controller.id} commits {batch}, which is on the disks of {holders} alone")
        self.committed.append(batch)
        delta = Delta(self.images[batch.base_offset])
        if not read_header(batch.content).is_control:
            for record in decode_records(batch.content):
                delta.apply(from_bytes(record.value or b""))
        self.images[batch.next_offset] = delta.image()

    def publishes(self, controller: "Controller", image: ClusterImage, offset: int) -> None:
        """An image is made of committed records alone, and of all of them up to there."""
        self.published += 1
        if offset not in self.images:
            raise Violation(f"node {controller.id} publishes an image up to offset {offset}, which is not committed")
        if image != self.images[offset]:
            raise Violation(
                f"the image of node {controller.id} at offset {offset} is not that of the committed records"
            )

    def sends(self, controller: "Controller", asked: Any, message: Any) -> None:
        """A node votes once in an epoch, and not before its vote is on its disk."""
        if isinstance(message, VoteRequest) and not message.topics[0].partitions[0].pre_vote:
            self._voted(controller, message.topics[0].partitions[0].replica_epoch, controller.id)
        elif isinstance(message, VoteResponse) and message.topics and message.topics[0].partitions[0].vote_granted:
            vote = asked.topics[0].partitions[0]
            if not vote.pre_vote:
                self._voted(controller, vote.replica_epoch, vote.replica_id)

    def _voted(self, controller: "Controller", epoch: int, candidate: int) -> None:
        if self.votes.setdefault((controller.id, epoch), candidate) != candidate:
            raise Violation(
                f"node {controller.id} voted in epoch {epoch} for {self.votes[controller.id, epoch]} and for {candidate}"
            )
        written = controller.on_disk(ELECTION)
        kept = election_from_text(written.decode()) if written else None
        if kept is None or ((kept.epoch, kept.voted_id) < (epoch, candidate) and kept.epoch <= epoch):
            raise Violation(f"node {controller.id} votes in epoch {epoch} for {candidate}, and {kept} is on its disk")

    def answered(self, number: int, count: int) -> None:
        """A command was carried out, as the `count`-th that its leader knew of."""
        if count in self.answers:
            raise Violation(f"commands {self.answers[count]} and {number} were both carried out as number {count}")
        self.answers[count] = number

    def at_the_end(self, names: Iterable[str]) -> None:
        """All that was answered is in the image; logs that have the same last batch are the same."""
        there = set(names)
        lost = [number for number in self.answers.values() if f"k{number}" not in there]
        if lost:
            raise Violation(f"the commands {lost} were answered and are lost")
