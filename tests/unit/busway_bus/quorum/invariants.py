"""What must hold of a quorum, looked at while it runs.

Here: the checks, over what nodes show, send and write.
Not here: running them (`simulated`). They see all nodes at once, the dead ones' disks too, and remember what was ever
true.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from busway_bus.quorum.ready import Proposal, Reply, Send
from busway_bus.quorum.states import NOBODY, Role
from busway_bus.quorum.votes import majority
from busway_bus.quorum.wire import leader_known_by
from busway_protocol.messages.quorum import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from tests.unit.busway_bus.quorum.simulated import Node


class Batch(NamedTuple):
    """A batch in a log."""

    base_offset: int
    next_offset: int
    epoch: int
    content: bytes


class Violation(AssertionError):
    """Something is not as it must be."""


class Invariants:
    """The memory of the checks."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.voters = voters
        self.committed: list[Batch] = []
        self.committed_in: list[int] = []
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.told_epochs: dict[int, int] = {}
        self.pre_votes: dict[tuple[int, int], set[int]] = {}
        self.elections = 0

    # Each step of a node

    def after_step(self, node: "Node", everyone: Iterable["Node"], now_ms: int) -> None:
        """Epochs and high watermarks go up; an epoch has one leader, in everybody's view; it has all that earlier ones committed."""
        core = node.core
        assert core is not None
        if core.epoch < node.epoch_seen:
            raise Violation(f"node {node.id} went from epoch {node.epoch_seen} back to {core.epoch}")
        node.epoch_seen = core.epoch
        if core.high_watermark < node.high_watermark_seen:
            raise Violation(f"node {node.id} took its high watermark back to {core.high_watermark}")
        if core.high_watermark > node.high_watermark_seen:
            node.high_watermark_seen = core.high_watermark
            self._applied(node, everyone)
        if core.leader_id != NOBODY and self.leaders.setdefault(core.epoch, core.leader_id) != core.leader_id:
            raise Violation(
                f"epoch {core.epoch} is led by {self.leaders[core.epoch]}, and by {core.leader_id} as node {node.id} knows"
            )
        leads = core.role is Role.LEADER
        if leads and not node.led:
            self.elections += 1
            node.led_ms = now_ms
            # One that was away may win an epoch that is over, and need not have what was committed in later ones.
            before = bisect_left(self.committed_in, core.epoch)
            if node.written[:before] != self.committed[:before]:
                raise Violation(f"node {node.id} leads epoch {core.epoch} without all that was committed")
        node.led = leads

    def _applied(self, node: "Node", everyone: Iterable["Node"]) -> None:
        """What a node applies is what all others apply; and it is on a majority's disks."""
        assert node.core is not None
        high_watermark = node.core.high_watermark
        while node.applied < len(node.written) and node.written[node.applied].next_offset <= high_watermark:
            batch = node.written[node.applied]
            if node.applied < len(self.committed):
                if self.committed[node.applied] != batch:
                    raise Violation(
                        f"node {node.id} applies {batch}, and {self.committed[node.applied]} was committed there"
                    )
            else:
                self.committed.append(batch)
                self.committed_in.append(node.core.epoch)
                self._on_majority(node.applied, everyone)
            node.applied += 1
        if node.core.role is Role.LEADER and node.written[node.applied - 1].epoch != node.core.epoch:
            raise Violation(f"node {node.id} leads epoch {node.core.epoch}, and committed up to an earlier one alone")
        if node.applied and self.committed[node.applied - 1].next_offset != high_watermark:
            raise Violation(
                f"the high watermark {high_watermark} of node {node.id} is within a batch or behind the log"
            )

    def _on_majority(self, number: int, everyone: Iterable["Node"]) -> None:
        batch = self.committed[number]
        holders = [
            node.id
            for node in everyone
            if node.id in self.voters and len(node.durable) > number and node.durable[number] == batch
        ]
        if len(holders) < majority(len(self.voters)):
            raise Violation(f"{batch} counts as committed and is on the disks of {holders} alone")

    # What leaves a node

    def sent(self, node: "Node", message: Send | Reply) -> None:
        """A node votes once in an epoch, and never tells of an epoch that it could forget."""
        if isinstance(message, Send):
            partition = message.body.topics[0].partitions[0]
            epoch = getattr(partition, "replica_epoch", getattr(partition, "current_leader_epoch", None))
            self._told(node, partition.leader_epoch if epoch is None else epoch)
            if isinstance(message.body, VoteRequest) and not partition.pre_vote:
                self._stands(node, partition.replica_epoch)
                self._voted(node, partition.replica_epoch, node.id)
            return
        known = leader_known_by(message.body)
        if known is None:
            return
        self._told(node, known.epoch)
        if isinstance(message.body, VoteResponse) and message.body.topics[0].partitions[0].vote_granted:
            asked = message.waiter.body.topics[0].partitions[0]
            if asked.pre_vote:
                self._would_vote(node, asked.replica_epoch, asked.replica_id)
            else:
                self._voted(node, asked.replica_epoch, asked.replica_id)

    def _would_vote(self, node: "Node", epoch: int, candidate: int) -> None:
        assert node.core is not None
        if node.core.role is Role.LEADER:
            raise Violation(f"node {node.id} leads epoch {node.core.epoch} and grants a pre-vote of {candidate}")
        self.pre_votes.setdefault((candidate, epoch), set()).add(node.id)

    def _stands(self, node: "Node", epoch: int) -> None:
        """A node raises its epoch only if a majority would vote for it (KIP-996)."""
        granted = {node.id, *self.pre_votes.get((node.id, epoch - 1), ())}
        if len(granted) < majority(len(self.voters)):
            raise Violation(f"node {node.id} stands in epoch {epoch} with the pre-votes of {sorted(granted)}")

    def after_tick(self, node: "Node", now_ms: int, within_ms: int) -> None:
        """A leader resigns without fetches of a majority, at most twice the check-quorum time-out after the first of them."""
        assert node.core is not None
        if node.core.role is not Role.LEADER or len(self.voters) == 1 or now_ms < node.led_ms + within_ms:
            return
        fetched = [
            voter for voter, at_ms in node.fetched_ms.items() if voter in self.voters and at_ms > now_ms - within_ms
        ]
        if len(fetched) + 1 < majority(len(self.voters)):
            raise Violation(f"node {node.id} leads epoch {node.core.epoch}, and only {fetched} fetch")

    def _told(self, node: "Node", epoch: int) -> None:
        self.told_epochs[node.id] = max(self.told_epochs.get(node.id, 0), epoch)
        on_disk = node.durable[-1].epoch if node.durable else 0
        if epoch > max(node.election.epoch, on_disk):
            raise Violation(f"node {node.id} tells of epoch {epoch}, and epoch {node.election.epoch} is on its disk")

    def _voted(self, node: "Node", epoch: int, candidate: int) -> None:
        before = self.votes.setdefault((node.id, epoch), candidate)
        if before != candidate:
            raise Violation(f"node {node.id} voted in epoch {epoch} for {before} and for {candidate}")
        if node.election.epoch == epoch and node.election.voted_id != candidate:
            raise Violation(
                f"node {node.id} votes in epoch {epoch} for {candidate}, and {node.election} is on its disk"
            )

    # Answers to clients

    def acknowledged(self, proposal: Proposal, content: bytes) -> None:
        """What a leader calls committed is committed, where it says."""
        committed_batches = [batch for batch in self.committed if batch.base_offset == proposal.first_offset]
        if (
            not committed_batches
            or committed_batches[0].epoch != proposal.epoch
            or content not in committed_batches[0].content
        ):
            raise Violation(f"{proposal} was acknowledged, and {committed_batches} is committed there")

    # A life, and the end

    def began(self, node: "Node") -> None:
        """A node that comes back remembers every epoch that it has sent."""
        assert node.core is not None
        told_epoch = self.told_epochs.get(node.id, 0)
        if node.core.epoch < told_epoch:
            raise Violation(f"node {node.id} began in epoch {node.core.epoch}, and had told of epoch {told_epoch}")

    def matching(self, everyone: Iterable["Node"]) -> None:
        """Two logs that have a batch of one epoch at one offset have the same batches before it."""
        logs = [node.written for node in everyone]
        for number, log in enumerate(logs):
            for other in logs[number + 1 :]:
                same = [at for at in range(min(len(log), len(other))) if log[at][:3] == other[at][:3]]
                if same and log[: same[-1] + 1] != other[: same[-1] + 1]:
                    raise Violation(
                        f"two logs have a batch of one epoch at one offset, and differ before it: {log} {other}"
                    )
