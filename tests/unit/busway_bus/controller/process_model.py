"""Processes of brokers that register, send heartbeats, are replaced and come back, in random order, beside a model.

A broker is the process that registered last. What its predecessors send is refused, and changes nothing.
Here: the model, the steps, `run`.
Not here: partitions (`leader_model`), what any sequence ends in (`test_membership_sequences`).
"""

import random
from dataclasses import dataclass

from tests.unit.busway_bus.controller.members import SESSION_MS, Members, registration

from busway_bus.controller.brokers import BrokerHeartbeat
from busway_bus.controller.heartbeats import BrokerHeartbeats, BrokerState, check_interval_ms
from busway_bus.controller.lost_brokers import FenceBroker, FenceStaleBrokers
from busway_protocol.errors import ErrorCode, KafkaError

BROKERS = (1, 2, 3)
STEPS = 80
KINDS = ("start", "repeat", "beat", "beat", "beat", "beat", "fence", "wait", "wait", "elect")
_REFUSALS = {ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.STALE_BROKER_EPOCH}


@dataclass(slots=True, eq=False)
class Process:
    """A process of a broker.

    Attributes:
        run: which of the broker's; it decides the incarnation id.
        epoch: of its registration, None before.
        contact_ms: of its last heartbeat to this controller while its session was not ended.
        caught_up: whether it has sent a heartbeat with its registration applied.
    """

    node_id: int
    run: int
    epoch: int | None = None
    contact_ms: int | None = None
    caught_up: bool = False


class Model:
    """The processes, and which of them is each broker."""

    def __init__(self, numbers: random.Random) -> None:
        self.numbers, self.members = numbers, Members(len(BROKERS))
        self.processes = {node_id: [self._first(node_id)] for node_id in BROKERS}
        self.registered = {node_id: processes[0] for node_id, processes in self.processes.items()}
        self.refused = 0

    def _first(self, node_id: int) -> Process:
        broker = self.members.image.brokers[node_id]
        return Process(node_id, 1, broker.epoch, self.members.now_ms, caught_up=True)

    def step(self) -> None:
        kind, node_id = self.numbers.choice(KINDS), self.numbers.choice(BROKERS)
        process = self.numbers.choice(self.processes[node_id][-3:])
        match kind:
            case "start":
                process = Process(node_id, self.processes[node_id][-1].run + 1)
                self.processes[node_id].append(process)
                self.register(process)
            case "repeat":
                self.register(process)
            case "beat" if process.epoch is not None:
                self.beat(process, process.epoch)
            case "fence" if process.epoch is not None:
                if self.members.run(FenceBroker(node_id=node_id, epoch=process.epoch)):
                    assert process is self.registered[node_id], "a broker is fenced in another epoch"
                    process.contact_ms = None
            case "wait":
                for _ in range(self.numbers.choice((1, 4, 9))):
                    self.members.now_ms += check_interval_ms(SESSION_MS)
                    self.members.run(FenceStaleBrokers())
            case "elect":
                self.members.heartbeats = BrokerHeartbeats()
                for process in self.registered.values():
                    process.contact_ms = None
        self.check()

    def register(self, process: Process) -> None:
        """A registration, or its repetition, however late."""
        before, highest = self.registered[process.node_id], max(each.epoch or 0 for each in self.registered.values())
        try:
            epoch = self.members.run(registration(process.node_id, run=process.run))
        except KafkaError as refusal:
            if refusal.code not in _REFUSALS:
                raise
            assert process is not before, "the repeated registration of a live process is refused"
            self.refused += 1
            return
        if process is before:
            assert epoch == process.epoch, "a repeated registration has another epoch"
            return
        assert epoch > highest, f"broker {process.node_id} has the epoch of another process"
        contact_ms = before.contact_ms
        assert contact_ms is None or contact_ms + SESSION_MS < self.members.now_ms, "registered beside a live process"
        process.epoch, process.contact_ms, process.caught_up = epoch, None, False
        self.registered[process.node_id] = process

    def beat(self, process: Process, epoch: int) -> None:
        """A heartbeat of a process that has applied all or not even its registration."""
        applied = self.numbers.choice((self.members.offset - 1, epoch - 1))
        command = BrokerHeartbeat(node_id=process.node_id, epoch=epoch, metadata_offset=applied)
        live = process is self.registered[process.node_id]
        try:
            reply = self.members.run(command)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.STALE_BROKER_EPOCH:
                raise
            assert not live, "a live process is refused"
            self.refused += 1
            return
        assert live, f"the heartbeat of a replaced process is accepted, and it is {reply.state.value}"
        process.contact_ms = None if reply.state is BrokerState.SHUTDOWN_NOW else self.members.now_ms
        process.caught_up |= applied >= epoch

    def check(self) -> None:
        """The image has the processes that registered last, and unfenced are those that have caught up."""
        for node_id, process in self.registered.items():
            broker = self.members.image.brokers[node_id]
            assert broker.epoch == process.epoch, "a broker has another epoch than its process"
            assert broker.incarnation == registration(node_id, run=process.run).incarnation, (
                "another process is registered"
            )
            assert broker.fenced or process.caught_up, "a broker is unfenced before it has caught up"


def run(seed: int, about: str = "") -> Model:
    """One seed. AssertionError: a rule is broken."""
    model = Model(random.Random(seed))
    for _ in range(STEPS):
        model.step()
    return model
