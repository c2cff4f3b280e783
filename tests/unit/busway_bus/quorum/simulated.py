"""A quorum of pure cores in virtual time, under a seed: disks that lose what was not flushed, a network that does what networks do, clocks askew.

Here: the driver, as dull as the real one, the disk, the network, faults, clients.
Not here: what must hold (`invariants`). A seed draws which of these faults exist at all, and how bad they are.
`run(seed)` is one run: faults, then none, and within `HEALED_WITHIN_MS` there must be one leader, and everything that
is proposed then committed everywhere.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from tests.unit.busway_bus.quorum.invariants import Batch, Invariants, Violation
from tests.unit.busway_bus.quorum.plan import Plan

from busway_bus.quorum.core import Quorum
from busway_bus.quorum.log_view import LogView
from busway_bus.quorum.ready import Answer, LogWrite, NotLeading, Persisted, Ready, Reply, Request, Send
from busway_bus.quorum.replica import NEVER_MS
from busway_bus.quorum.settings import QuorumSettings
from busway_bus.quorum.states import Election, Role
from busway_bus.quorum.voters import ReplicaKey, Voter, VoterSet
from busway_protocol.compile import decode, encode
from busway_protocol.messages.fetch import FetchRequest
from busway_protocol.messages.metadata_snapshots import FetchSnapshotRequest
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.schema import info_of

SETTINGS = QuorumSettings(
    election_timeout_ms=150,
    fetch_timeout_ms=300,
    election_backoff_max_ms=150,
    request_timeout_ms=250,
    retry_backoff_ms=20,
    fetch_max_wait_ms=100,
)
FAULTS_MS = 5_000
HEALED_WITHIN_MS = 6_000
EVENTS_MAX = 60_000
OBSERVER = 100


class Waiter(NamedTuple):
    """Who asked, in which of its lives, and what."""

    node_id: int
    life: int
    correlation: int
    body: Any


@dataclass(eq=False)
class Node:
    """One host: what is on its disk, what was written and is not there yet, and the core while it is up."""

    id: int
    rate: float
    offset_ms: int
    election: Election = field(default_factory=Election)
    durable: list[Batch] = field(default_factory=list)
    written: list[Batch] = field(default_factory=list)
    writing: deque[Ready] = field(default_factory=deque)
    flushing: int = 0
    core: Quorum | None = None
    life: int = 0
    wakes_ms: float = 0.0
    frozen_until_ms: float = 0.0
    epoch_seen: int = 0
    high_watermark_seen: int = 0
    applied: int = 0
    led: bool = False
    led_ms: int = 0
    fetched_ms: dict[int, int] = field(default_factory=dict)

    @property
    def key(self) -> ReplicaKey:
        """The replica that it is."""
        return ReplicaKey(self.id, UUID(int=1000 + self.id))


class Simulation:
    """One run."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.chance = Random(seed)
        self.plan = plan or Plan.drawn(self.chance)
        self.now_ms = 0.0
        self.events = 0
        self.trace = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.cut: set[tuple[int, int]] = set()
        self.faults = True
        voters = tuple(range(1, self.plan.voters + 1))
        self.invariants = Invariants(voters)
        ids = (*voters, OBSERVER) if self.plan.observer else voters
        skew = self.plan.skew
        self.nodes = {
            node_id: Node(
                id=node_id,
                rate=1 + self.chance.uniform(-skew, skew),
                offset_ms=self.chance.randrange(100_000),
            )
            for node_id in ids
        }
        keys = (Voter(key=self.nodes[node_id].key) for node_id in voters)
        self.voters = VoterSet(keys) if self.plan.directories else VoterSet.fixed(voters)
        self.proposed = itertools.count()
        self.acknowledged = 0
        for node in self.nodes.values():
            self._start(node)

    # Time

    def at(self, when_ms: float, what: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._queue, (when_ms, next(self._order), what))

    def until(self, end_ms: float, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass; answers whether `done` came true."""
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, what = heapq.heappop(self._queue)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise Violation(f"more than {EVENTS_MAX} events: somebody asks without end")
            what()
            if done is not None and done():
                return True
        self.now_ms = end_ms
        return False

    def _clock(self, node: Node) -> int:
        return int(node.offset_ms + self.now_ms * node.rate)

    # The driver

    def _start(self, node: Node) -> None:
        node.life += 1
        node.written = list(node.durable)
        node.writing.clear()
        node.flushing = 0
        log = LogView()
        for batch in node.durable:
            log.appended(batch.epoch, batch.base_offset, batch.next_offset)
        log.flushed(log.end_offset)
        node.fetched_ms.clear()
        node.epoch_seen = node.high_watermark_seen = node.applied = 0
        node.led = False
        node.wakes_ms = 0.0
        node.core = Quorum(
            me=node.key,
            voters=self.voters,
            election=node.election,
            log=log,
            chance=self.chance,
            now_ms=self._clock(node),
            settings=SETTINGS,
            cluster_id="a cluster",
        )
        self.invariants.began(node)
        self._do(node, node.core.tick(self._clock(node)))

    def _step(self, node: Node, life: int, message: Any) -> None:
        """A message comes to a node, if it still lives the same life."""
        if node.core is None or node.life != life:
            return
        if node.frozen_until_ms > self.now_ms:
            self.at(node.frozen_until_ms, lambda: self._step(node, life, message))
            return
        now_ms = self._clock(node)
        if isinstance(message, Request) and isinstance(message.body, FetchRequest | FetchSnapshotRequest):
            body = message.body
            node.fetched_ms[getattr(body, "replica_state", body).replica_id] = now_ms
        self._do(node, node.core.tick(now_ms) if message is None else node.core.step(message, now_ms))
        if message is None:
            self.invariants.after_tick(node, now_ms, 3 * SETTINGS.fetch_timeout_ms)

    def _do(self, node: Node, ready: Ready) -> None:
        """Carry out a `Ready`, as the driver will."""
        core = node.core
        assert core is not None
        for write in ready.append:
            _write(node.written, write)
        self.invariants.after_step(node, self.nodes.values(), self._clock(node))
        for proposal in ready.committed:
            self.acknowledged += 1
            self.invariants.acknowledged(proposal, proposal.waiter)
        self.trace = hash((self.trace, node.id, core.role.value, core.epoch, core.high_watermark, len(ready.send)))
        if ready.writes:
            node.writing.append(ready)
            self._flush(node)
        for message in ready.send:
            self.invariants.sent(node, message)
            if isinstance(message, Send):
                self._ask(node, message)
            else:
                self._reply(node, message)
        self._wake(node)

    def _wake(self, node: Node) -> None:
        """Have the node looked after when it asks for it, and once at a time."""
        assert node.core is not None
        local_ms = node.core.wake_ms(self._clock(node))
        when_ms = max((local_ms - node.offset_ms) / node.rate, self.now_ms) + 0.5
        if self.now_ms < node.wakes_ms <= when_ms:
            return
        node.wakes_ms = when_ms
        life = node.life

        def wake() -> None:
            if node.wakes_ms == when_ms:
                self._step(node, life, None)

        if local_ms < NEVER_MS:
            self.at(when_ms, wake)

    # The disk

    def _flush(self, node: Node) -> None:
        """One flush at a time takes all that waits for one."""
        if node.flushing or not node.writing:
            return
        node.flushing, life = len(node.writing), node.life
        took_ms = self.chance.random() * (self.plan.disk_ms if self.faults else 5)
        self.at(self.now_ms + took_ms, lambda: self._flushed(node, life))

    def _flushed(self, node: Node, life: int) -> None:
        if node.core is None or node.life != life:
            return
        number = 0
        for _ in range(node.flushing):
            ready = node.writing.popleft()
            _persist(node, ready)
            number = ready.number
        node.flushing = 0
        self._flush(node)
        self._step(node, life, Persisted(number=number))

    def crash(self, node: Node) -> None:
        """Power is gone: of what was being written, a beginning is on the disk; of one write, perhaps the half."""
        kept = self.chance.randrange(len(node.writing) + 1)
        for ready in itertools.islice(node.writing, kept):
            _persist(node, ready)
        if kept < len(node.writing) and self.chance.random() < 0.5:
            torn = node.writing[kept]
            node.election = torn.save or node.election
        node.core = None
        self.at(self.now_ms + self.chance.uniform(10, 1_500), lambda: self.restart(node))

    def restart(self, node: Node) -> None:
        """The power is back."""
        if node.core is None:
            self._start(node)

    # The network

    def _ask(self, node: Node, send: Send) -> None:
        waiter = Waiter(node.id, node.life, send.correlation, send.body)
        other = self.nodes[send.to]
        if other.core is None and self.chance.random() < 0.5:  # refused at once
            answer = Answer(correlation=send.correlation, body=None)
            self.at(self.now_ms + 1, lambda: self._step(node, waiter.life, answer))
            return
        request = Request(waiter=waiter, body=self._wired(send.body))
        self._transmit(node.id, send.to, lambda: self._step(other, other.life, request))

    def _reply(self, node: Node, reply: Reply) -> None:
        asker: Waiter = reply.waiter
        if reply.read is not None:
            behind = [batch for batch in node.written if batch.base_offset >= reply.read.offset]
            records = b"".join(batch.content for batch in behind[: self.plan.batches_per_read if self.faults else 100])
            reply.body.responses[0].partitions[0].records = records  # type: ignore[union-attr]
        answer = Answer(correlation=asker.correlation, body=self._wired(reply.body))
        other = self.nodes[asker.node_id]
        self._transmit(node.id, asker.node_id, lambda: self._step(other, asker.life, answer))

    def _transmit(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        if (source, target) in self.cut:
            return
        if not self.faults:
            self.at(self.now_ms + 1 + self.chance.random(), deliver)
            return
        if self.chance.random() < self.plan.drop:
            return
        copies = 2 if self.chance.random() < self.plan.duplicate else 1
        for _ in range(copies):
            slow = 5 if self.chance.random() < 0.02 else 1
            self.at(self.now_ms + 0.1 + self.chance.random() * self.plan.delay_ms * slow, deliver)

    def _wired(self, message: Any) -> Any:
        if not self.plan.on_the_wire:
            return message
        version = info_of(type(message)).max_version
        return decode(type(message), version, encode(message, version))

    # Clients

    def client(self) -> None:
        """A client proposes to a node that it takes for the leader."""
        self.propose(self.chance.choice(list(self.nodes.values())))
        leaders = [node for node in self.nodes.values() if node.core is not None and node.core.role is Role.LEADER]
        if leaders:
            self.propose(self.chance.choice(leaders))
        if self.faults:
            self.at(self.now_ms + self.chance.random() * 2 * self.plan.propose_every_ms, self.client)

    def propose(self, node: Node) -> bool:
        """Propose one batch to one node; answers whether it leads."""
        if node.core is None or node.frozen_until_ms > self.now_ms:
            return False
        content = b"<%d>" % next(self.proposed)
        builder = BatchBuilder()
        for _ in range(self.chance.choice((1, 1, 3))):
            builder.append(0, None, content)
        try:
            _, ready = node.core.propose(builder.build(), self._clock(node), content)
        except NotLeading:
            return False
        self._do(node, ready)
        return True

    # Faults

    def fault(self) -> None:
        """One of those that this seed has, or an end of them."""
        if not self.faults:
            return
        ids = list(self.nodes)
        match self.chance.choice((*self.plan.kinds, "heal")):
            case "crash":
                up = [node for node in self.nodes.values() if node.core is not None]
                leaders = [node for node in up if node.core is not None and node.core.role is Role.LEADER]
                if up:
                    self.crash(self.chance.choice(leaders if leaders and self.chance.random() < 0.5 else up))
            case "crash_all":
                for node in self.nodes.values():
                    if node.core is not None:
                        self.crash(node)
            case "resign":
                for node in self.nodes.values():
                    if node.core is not None and node.frozen_until_ms <= self.now_ms:
                        self._do(node, node.core.resign(self._clock(node)))
            case "freeze":
                node = self.chance.choice(list(self.nodes.values()))
                node.frozen_until_ms = self.now_ms + self.chance.uniform(50, 1_000)
            case "isolate":
                node_id = self.chance.choice(ids)
                self.cut = {(a, b) for a in ids for b in ids if (a == node_id) != (b == node_id)}
            case "one_way":
                self.cut.add((self.chance.choice(ids), self.chance.choice(ids)))
            case "ring":
                self.chance.shuffle(ids)
                near = {(ids[at], ids[(at + 1) % len(ids)]) for at in range(len(ids))}
                self.cut = {(a, b) for a in ids for b in ids if (a, b) not in near and (b, a) not in near}
                if len(ids) == 3:
                    self.cut = {(a, b) for a, b in near}
            case "halves":
                self.chance.shuffle(ids)
                side = set(ids[: self.chance.randrange(len(ids))])
                self.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
            case _:
                self.cut = set()
        self.at(self.now_ms + self.chance.random() * 2 * self.plan.fault_every_ms, self.fault)

    # A run

    def run(self) -> None:
        """Faults, then none: and all must work again."""
        self.at(0, self.client)
        self.at(self.plan.fault_every_ms, self.fault)
        self.until(FAULTS_MS)
        self.invariants.matching(self.nodes.values())
        self._heal()
        healed_ms = self.now_ms
        proposed = 0

        def works() -> bool:
            nonlocal proposed
            leaders = [node for node in self.nodes.values() if node.core is not None and node.core.role is Role.LEADER]
            newest = max(leaders, key=lambda node: node.epoch_seen, default=None)
            if newest is not None and proposed < 5 and self.now_ms > healed_ms + proposed * 50:
                proposed += self.propose(newest)
            return proposed == 5 and len(leaders) == 1 and self._level(leaders[0])

        if not self.until(healed_ms + HEALED_WITHIN_MS, works):
            shown = {
                node.id: (node.core and (node.core.role.name, node.core.epoch, node.core.high_watermark))
                for node in self.nodes.values()
            }
            raise Violation(f"{HEALED_WITHIN_MS} ms after the last fault not all is committed everywhere: {shown}")
        self.invariants.matching(self.nodes.values())

    def _level(self, leader: Node) -> bool:
        assert leader.core is not None
        end_offset = leader.core.log.end_offset
        return all(
            node.core is not None and node.core.high_watermark == end_offset and node.core.epoch == leader.core.epoch
            for node in self.nodes.values()
        )

    def _heal(self) -> None:
        self.faults = False
        self.cut = set()
        for node in self.nodes.values():
            node.frozen_until_ms = 0
            self.restart(node)


def _write(log: list[Batch], write: LogWrite) -> None:
    """Change a log as the core says."""
    if write.truncate_to is not None:
        while log and log[-1].next_offset > write.truncate_to:
            log.pop()
    for content in write.batches:
        for header, batch in iter_batches(content):
            assert header.base_offset == (log[-1].next_offset if log else 0), "a batch does not follow on the log"
            log.append(Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, bytes(batch)))


def _persist(node: Node, ready: Ready) -> None:
    """It is on the disk."""
    node.election = ready.save or node.election
    for write in ready.append:
        _write(node.durable, write)


def run(seed: int) -> Simulation:
    """One seed.

    Raises:
        Violation: an invariant does not hold, or the quorum does not recover.
    """
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as problem:
        raise Violation(f"seed {seed}: {type(problem).__name__}: {problem} ({simulation.plan})") from problem
    return simulation
