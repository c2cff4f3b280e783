"""Rules of replicated partitions, checked while brokers run.

Here: rules of the controller's decisions, of acknowledgements and of answers to followers; they see all brokers at once.
Not here: what clients have seen (`clients`), the faults (`scenario`).
"""

from collections.abc import Mapping
from typing import Any, Final

from busway_bus.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode
from tests.unit.busway_bus.replication.replica_cluster import TOPIC, ReplicaCluster
from tests.unit.busway_bus.replication.replica_controller import Watch

MIN_ISR: Final = 2
"""min.insync.replicas of the brokers."""


class Violation(AssertionError):
    """A broken rule.

    Attributes:
        name: of the anomaly.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Rules(Watch):
    """The rules of one run; `violation` is the first that was broken.

    Attributes:
        flushed: acknowledged means flushed on each in-sync replica; otherwise written.
        unclean: unclean elections are allowed.
    """

    def __init__(self, cluster: ReplicaCluster, *, flushed: bool = True, unclean: bool = False) -> None:
        self.cluster, self.flushed, self.unclean = cluster, flushed, unclean
        self.violation: Violation | None = None
        self.ends: dict[int, int] = {}
        """End of what was acknowledged, by partition."""
        self.fetched: dict[tuple[int, ...], int] = {}
        """Newest broker epoch of each follower that a leader has served."""

    def broken(self, name: str, text: str) -> None:
        self.violation = self.violation or Violation(name, text)

    # What replicas have

    def end(self, partition: Partition) -> int:
        """End of what a replica may count as its own."""
        return partition.log.flushed_offset if self.flushed else partition.log.end_offset

    def ready(self, node_id: int, index: int) -> Partition | None:
        """A replica of a broker that runs in the epoch that the controller knows."""
        broker = self.cluster.controller.image.brokers.get(node_id)
        host = self.cluster.hosts[node_id]
        if broker is None or not host.alive or host.epoch != broker.epoch:
            return None
        return self.cluster.partition_on(node_id, index)

    # Decisions of the controller

    def decided(self, before: ClusterImage, image: ClusterImage) -> None:
        """A leader was in sync or eligible and has a new epoch; a member of the ISR is unfenced and has all that is committed."""
        topic = image.topics.get(TOPIC)
        for index, placed in enumerate(() if topic is None else topic.partitions):
            older = before.partition(TOPIC, index)
            if older is not None and older is not placed:
                self._changed(index, older, placed)
            fenced = [node_id for node_id in placed.isr if not image.is_active(node_id)]
            if fenced and len(placed.isr) > 1:
                self.broken("fenced in sync", f"brokers {fenced} are fenced and in the ISR {placed.isr} of {index}")

    def _changed(self, index: int, older: PartitionImage, placed: PartitionImage) -> None:
        if placed.leader not in {older.leader, NO_LEADER}:
            if placed.leader_epoch <= older.leader_epoch:
                self.broken(
                    "epoch reused", f"broker {placed.leader} leads {index} in epoch {placed.leader_epoch} again"
                )
            if placed.leader not in {*older.isr, *older.elr} and not self.unclean:
                text = f"broker {placed.leader} leads {index}, in sync were {older.isr} and eligible {older.elr}"
                self.broken("unclean election", text)
            replica = self.ready(placed.leader, index)
            if replica is not None and replica.log.end_offset < self.ends.get(index, 0) and not self.unclean:
                text = (
                    f"broker {placed.leader} leads {index} and ends at {replica.log.end_offset} of {self.ends[index]}"
                )
                self.broken("incomplete leader", text)
        leading = self.ready(placed.leader, index) if placed.leader != NO_LEADER else None
        if leading is None or not leading.leads:
            return
        for node_id in {*placed.isr} - {*older.isr, placed.leader}:
            replica = self.ready(node_id, index)
            committed = max(leading.high_watermark, self.ends.get(index, 0))
            if replica is not None and self.end(replica) < committed:
                text = f"broker {node_id} enters the ISR of {index} with {self.end(replica)} of {committed}"
                self.broken("incomplete replica in sync", text)

    def altering(self, request: Any, response: Any, image: ClusterImage) -> None:
        """An AlterPartition of outdated epochs changes nothing."""
        if response.error_code != ErrorCode.NONE:
            return
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            self.broken("stale request", f"AlterPartition of broker {request.broker_id} in an earlier epoch is served")
        for topic, answered in zip(request.topics, response.topics, strict=True):
            for asked, answer in zip(topic.partitions, answered.partitions, strict=True):
                placed = image.partition_by_id(topic.topic_id, asked.partition_index)
                if answer.error_code != ErrorCode.NONE or placed is None:
                    continue
                theirs = asked.leader_epoch, asked.partition_epoch
                if theirs != (placed.leader_epoch, placed.partition_epoch):
                    self.broken("stale request", f"AlterPartition of epochs {theirs} is served in {placed}")
                for state in asked.new_isr_with_epochs:
                    if state.broker_epoch == -1 and state.broker_id not in placed.isr:
                        self.broken("stale request", f"broker {state.broker_id} enters an ISR whatever its epoch is")
                    member = image.brokers.get(state.broker_id)
                    if member is None or state.broker_epoch not in {-1, member.epoch}:
                        text = f"broker {state.broker_id} enters an ISR with its earlier epoch {state.broker_epoch}"
                        self.broken("stale request", text)

    # Acknowledgements and fetches

    def acknowledged(self, index: int, offset: int) -> None:
        """What is acknowledged is on every in-sync replica, and on as many replicas as min.insync.replicas."""
        placed = self.cluster.partition(index)
        self.ends[index] = max(self.ends.get(index, 0), offset + 1)
        for node_id in placed.isr:
            replica = self.ready(node_id, index)
            if replica is not None and self.end(replica) <= offset:
                text = (
                    f"offset {offset} of {index} is acknowledged, in-sync broker {node_id} ends at {self.end(replica)}"
                )
                self.broken("acknowledged too early", text)
        lacking = [node_id for node_id in self.cluster.hosts if self._lacks(node_id, index, offset)]
        if self.flushed and len(self.cluster.hosts) - len(lacking) < MIN_ISR:
            self.broken("acknowledged too early", f"offset {offset} of {index} is acknowledged, {lacking} lack it")

    def _lacks(self, node_id: int, index: int, offset: int) -> bool:
        """Whether a broker does not have an offset; of one that is down, as it was at its end."""
        replica = self.cluster.hosts[node_id].replicas.local.get((TOPIC, index))
        return replica is not None and self.end(replica) <= offset

    def served_until_now(self) -> Mapping[Any, int]:
        return dict(self.fetched)

    def served(
        self,
        leader: tuple[int, int],
        request: Any,
        response: Any,
        before: dict[int, int],
        after: dict[int, int],
        served: Mapping[Any, int],
    ) -> None:
        """A follower with another leader epoch gets no records; nor does a process that was replaced, once the next has fetched.

        A fetch that waited for records since before that is answered without any.
        """
        asked = {partition.partition: partition for topic in request.topics for partition in topic.partitions}
        replica, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        for topic in response.responses:
            for answer in topic.partitions:
                index = answer.partition_index
                if index not in asked or answer.error_code != ErrorCode.NONE:
                    continue
                epoch = asked[index].current_leader_epoch
                if not before.get(index, epoch) <= epoch <= after.get(index, epoch):
                    text = f"a fetch in epoch {epoch} of {index} is served, whose epoch is {after[index]}"
                    self.broken("stale request", text)
                key = (*leader, index, after.get(index, epoch), replica)
                newest = self.fetched if answer.records else served
                if broker_epoch < newest.get(key, broker_epoch):
                    text = f"a fetch of broker {replica} in its earlier epoch {broker_epoch} is served"
                    self.broken("stale request", text)
                self.fetched[key] = max(self.fetched.get(key, broker_epoch), broker_epoch)
