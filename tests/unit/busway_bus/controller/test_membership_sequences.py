"""Any sequence of starts, kills, heartbeats, checks and changes of the controller leaves an image that can be served."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.busway_bus.controller.members import CLUSTER_ID, SESSION_MS, Members, registration

from busway_bus.controller import leaders
from busway_bus.controller.brokers import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from busway_bus.controller.heartbeats import BrokerHeartbeats, BrokerState, check_interval_ms
from busway_bus.controller.lost_brokers import FenceBroker, FenceStaleBrokers, UnregisterBroker
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import NO_LEADER, ClusterImage
from busway_bus.metadata.records import from_bytes, to_bytes
from busway_bus.metadata.snapshot import SnapshotId, batches_of, read_into
from busway_protocol.errors import ErrorCode, KafkaError

BROKERS = (1, 2, 3)
REFUSALS = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
}


class Step(NamedTuple):
    what: str
    node_id: int
    flag: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            [
                "beat",
                "beat",
                "beat",
                "start",
                "stop",
                "kill",
                "fence",
                "unregister",
                "wait",
                "silence",
                "elect",
                "create",
            ]
        ),
        st.sampled_from(BROKERS),
        st.booleans(),
    ),
    max_size=40,
)


class Simulated(Members):
    """Brokers as processes: each has the epoch of its registration, or none."""

    def __init__(self, *, elr: bool) -> None:
        self.epochs: dict[int, int] = {}
        self.highest, self.runs, self.topics = -1, 0, 0
        super().__init__(len(BROKERS), elr=elr)
        self.epochs = {broker.node_id: broker.epoch for broker in self.image.brokers.values()}
        self.highest = max(self.epochs.values())

    def run(self, command: Any) -> Any:
        """Each record is as good after it was written and read."""
        before = self.image
        reply = super().run(command)
        delta = Delta(before)
        for record in self.records:
            delta.apply(from_bytes(to_bytes(record)))
        assert delta.image() == self.image
        return reply

    def attempt(self, command: Any) -> Any:
        """Carry a command out; None if it is refused, which changes nothing."""
        before = self.image
        try:
            return self.run(command)
        except KafkaError as problem:
            if problem.code not in REFUSALS or self.image is not before:
                raise
            return None

    def start(self, node_id: int, *, clean: bool) -> None:
        self.runs += 1
        known = self.image.brokers.get(node_id)
        previous = {"previous_epoch": known.epoch} if clean and known is not None else {}
        command: RegisterBroker = registration(node_id, run=10 + self.runs, cluster_id=CLUSTER_ID, **previous)
        epoch = self.attempt(command)
        if epoch is not None:
            assert epoch > self.highest
            self.highest = self.epochs[node_id] = epoch

    def heartbeat(self, node_id: int, **fields: Any) -> HeartbeatReply | None:
        """A heartbeat of the process, which may have been replaced by another."""
        epoch = self.epochs.get(node_id)
        if epoch is None:
            return None
        reply: HeartbeatReply | None = self.attempt(
            BrokerHeartbeat(node_id=node_id, epoch=epoch, metadata_offset=self.offset - 1, **fields)
        )
        if reply is None or reply.state is BrokerState.SHUTDOWN_NOW:
            del self.epochs[node_id]
        return reply

    def wait(self, silent: int | None = None) -> None:
        """A session goes by, with heartbeats of all but one, and the controller's checks."""
        for _ in range(10):
            self.now_ms += check_interval_ms(SESSION_MS)
            for node_id in BROKERS:
                if node_id != silent:
                    self.heartbeat(node_id)
            self.attempt(FenceStaleBrokers())

    def take(self, step: Step) -> None:
        match step:
            case Step("beat", node_id, flag):
                self.heartbeat(node_id, want_fence=flag)
            case Step("start", node_id, flag):
                self.start(node_id, clean=flag)
            case Step("stop", node_id, _):
                self.heartbeat(node_id, want_shut_down=True)
            case Step("kill", node_id, flag):
                epoch = self.epochs.pop(node_id, None)
                if flag and epoch is not None:
                    self.attempt(FenceBroker(node_id=node_id, epoch=epoch))
            case Step("fence", node_id, flag):
                self.attempt(FenceBroker(node_id=node_id, epoch=self.epochs.get(node_id, -1) - (not flag)))
            case Step("unregister", node_id, _):
                self.attempt(UnregisterBroker(node_id=node_id))
            case Step("wait"):
                self.wait()
            case Step("silence", node_id, _):
                self.wait(silent=node_id)
                known = self.image.brokers.get(node_id)
                assert known is None or known.fenced
            case Step("elect"):
                self.heartbeats = BrokerHeartbeats()
            case Step("create"):
                if len(list(self.image.usable_brokers())) == len(BROKERS):
                    self.topics += 1
                    self.create(f"t{self.topics}", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
        self.check()

    def restart_the_stopped(self) -> None:
        """Start brokers that do not run, and those that were stopping."""
        self.wait()
        for node_id in BROKERS:
            known = self.image.brokers.get(node_id)
            if known is not None and known.in_controlled_shutdown:
                self.take(Step("kill", node_id, True))
            if node_id not in self.epochs:
                self.start(node_id, clean=False)
        self.wait()

    def check(self) -> None:
        """Leaders are unfenced; members of an ISR are, unless no other is left.

        A broker that is unfenced again in its controlled shutdown may lead, as in Kafka.
        """
        unfenced = {broker.node_id for broker in self.image.usable_brokers()}
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                assert partition.leader == NO_LEADER or partition.leader in unfenced
                assert partition.leader == NO_LEADER or partition.leader in partition.isr
                assert set(partition.isr) <= unfenced or len(partition.isr) == 1
                assert not set(partition.isr) & set(partition.elr)


def restored(image: ClusterImage) -> ClusterImage:
    """The image from its own snapshot."""
    delta = Delta(ClusterImage())
    read_into(b"".join(batches_of(image, SnapshotId(1, 1), last_ms=0, now_ms=0)), delta)
    return delta.image()


@given(st.booleans(), st.sampled_from([1, 1_000]), STEPS)
def test_any_sequence_ends_in_a_cluster_that_serves(elr: bool, at_once: int, steps: list[Step]) -> None:
    """At last all brokers start, and lead every partition, and stop one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaders, "PARTITIONS_CHANGED_AT_ONCE_MAX", at_once)
        run_sequence(elr, steps)


def run_sequence(elr: bool, steps: list[Step]) -> None:
    """The steps, then a start and a stop of every broker."""
    members = Simulated(elr=elr)
    members.take(Step("create", 1, True))
    for step in steps:
        members.take(step)
    assert restored(members.image) == members.image
    members.restart_the_stopped()
    assert all(broker.active for broker in members.image.brokers.values())
    for topic in members.image.topics.values():
        assert all(partition.leader != NO_LEADER for partition in topic.partitions)
    for stopping in BROKERS:
        while stopping in members.epochs:
            members.heartbeat(stopping, want_shut_down=True)
            for node_id in BROKERS:
                if node_id > stopping:
                    members.heartbeat(node_id)
        members.check()
    assert sorted(members.image.brokers) == list(BROKERS)
    assert not list(members.image.usable_brokers())
