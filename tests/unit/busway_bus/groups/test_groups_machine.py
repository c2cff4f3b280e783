"""Any sequence of joins, syncs, beats, leaves, commits, transactions, waits, full disks and crashes keeps a shard's promises.

The machine below is the driver and the clients of one shard: what it appends is held in a list of bytes, answers go out when
the list is "on disk", and a crash loses the rest and replays. A twin shard sees the log alone: what is written down is the same in both
at any moment. Hypothesis prints the shortest sequence that breaks a promise; the
run is the same each time; more examples search further.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.busway_bus.groups.live import live_shard

from busway_bus.coordinator.replay import apply_records, latest_records
from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Committer
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.offsets import CommittedOffset, NewOffset
from busway_bus.groups.pending_offsets import pending_bytes
from busway_bus.groups.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.groups.shard import Change, GroupShard
from busway_bus.handlers.common.context import finished
from busway_bus.kernel.decision import PARKED, Decision
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import end_transaction_marker

GROUPS = ("g", "h")
CLIENTS = ("a", "b", "c", "d", "e")
STATIC = {"d": "seat-1", "e": "seat-2"}
SESSION_MS = 6_000
REBALANCE_MS = 20_000
RETENTION_MS = 60_000
RANGE = ("range", encode_subscription(Subscription(topics=("t",))))
STICKY = ("sticky", encode_subscription(Subscription(topics=("t", "u"))))
PRODUCERS = (7, 8, 9)
Entry = tuple[bytes | None, bytes | None, int]
"""One record as it is stored, with its producer or -1; a marker has no key, and a value where it commits."""
PROTOCOLS = [(RANGE, STICKY), (STICKY, RANGE), (RANGE,)]


@dataclass(slots=True, kw_only=True)
class Client:
    """What one client believes."""

    name: str
    group_id: str
    member_id: str = ""
    generation: int = -1
    leader: bool = False
    roster: tuple[str, ...] = ()
    waiting: bool = False
    """Whether a request is under way."""
    unsynced_since: int | None = None
    """When it heard of its generation, until it has its assignment."""

    def forget(self) -> None:
        """It is no member any more."""
        self.member_id, self.generation, self.unsynced_since = "", -1, None

    @property
    def instance_id(self) -> str | None:
        return STATIC.get(self.name)

    def committer(self, *, as_nobody: bool, transactional: bool = False) -> Committer:
        """As who it commits."""
        if as_nobody:
            return Committer(member_id="", instance_id=None, epoch=-1, version=8, transactional=transactional)
        return Committer(
            member_id=self.member_id,
            instance_id=self.instance_id,
            epoch=self.generation,
            version=8,
            transactional=transactional,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ticket:
    """The waiter of one request: whose it is, and of which group and generation."""

    client: Client
    group: ClassicGroup
    generation: int
    since: int


@dataclass(slots=True)
class Judge:
    """The offsets that a log says, by Kafka's rule: each with its place in the log, and none takes the place of a later one."""

    in_force: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    pending: dict[int, dict[Any, tuple[int, Any]]] = field(default_factory=dict)

    def write(self, at: int, key: Any, value: Any, producer_id: int) -> None:
        if value is None:
            self.in_force.pop(key, None)
            for keys in self.pending.values():
                keys.pop(key, None)
        elif producer_id < 0:
            self.in_force[key] = at, value
        else:
            self.pending.setdefault(producer_id, {})[key] = at, value

    def end(self, producer_id: int, *, committed: bool) -> None:
        for key, (at, value) in self.pending.pop(producer_id, {}).items():
            if committed and at > self.in_force.get(key, (-1, None))[0]:
                self.in_force[key] = at, value


def batch_of(entry: Entry) -> bytes:
    """An entry of the log as the file has it."""
    key, value, producer_id = entry
    if key is None:
        committed = value is not None
        return end_transaction_marker(producer_id, 0, committed=committed, coordinator_epoch=0, timestamp_ms=0)
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=min(producer_id, 0), transactional=producer_id >= 0)
    builder.append(0, key, value)
    return builder.build()


class Groups(RuleBasedStateMachine):
    """The driver of one shard with its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.ids = 0
        self.log: list[Entry] = []
        self.durable = 0
        self.held: list[tuple[Ticket, Any]] = []
        self.open: list[Ticket] = []
        self.facts: dict[tuple[ClassicGroup, int], tuple[str, str | None]] = {}
        self.clients = {(group, name): Client(name=name, group_id=group) for group in GROUPS for name in CLIENTS}
        self.shard, self.twin = self.fresh(), self.fresh()
        self.full = 0
        """Appends that find no room, from now on."""

    def fresh(self) -> GroupShard:
        limits = GroupLimits(initial_rebalance_delay_ms=3_000, max_size=4)
        return live_shard(limits=limits, new_member_id=self.new_id)

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}/{self.ids}"

    # The driver

    def carry_out(self, decision: Decision[Any], ticket: Ticket | None = None, producer_id: int = -1) -> bool:
        """Append, apply and hold, as the runtime does; False where there is no room."""
        if decision.records and self.full:
            self.full -= 1
            for refused in [parked for parked, _ in decision.responses] + ([ticket] if ticket is not None else []):
                self.open.remove(refused)
                refused.client.waiting = False
            return False
        for change in decision.records:
            self.log.append((*self.shard.encode(change), producer_id))
            if producer_id < 0:
                self.shard.apply(change, self.now)
            else:
                self.shard.apply_pending(change, producer_id, self.now)
            self.replay(self.twin, self.log[-1])
        self.held += decision.responses
        if ticket is not None and decision.reply is not PARKED:
            self.held.append((ticket, decision.reply))
        if len(self.log) == self.durable:
            self.flush()
        return True

    def flush(self) -> None:
        self.durable = len(self.log)
        held, self.held = self.held, []
        for ticket, answer in held:
            self.deliver(ticket, answer)

    def ticket(self, client: Client, group: ClassicGroup, generation: int = -1) -> Ticket:
        new_ticket = Ticket(client=client, group=group, generation=generation, since=self.now)
        client.waiting = True
        self.open.append(new_ticket)
        return new_ticket

    def replay(self, shard: GroupShard, entry: Entry) -> None:
        """Take in what is stored, one entry after the other."""
        key, value, producer_id = entry
        if key is None:
            shard.end_transaction(producer_id, self.now, committed=value is not None)
            return
        change = GroupShard.decode(key, value)
        assert change is not None
        if producer_id < 0:
            shard.apply(change, self.now)
        else:
            shard.apply_pending(change, producer_id, self.now)

    def loaded(self) -> GroupShard:
        """What a start makes of the log."""
        shard = self.fresh()
        for _ in apply_records(
            shard, finished(latest_records(shard, [batch_of(entry) for entry in self.log])), self.now
        ):
            pass
        return shard

    def stored(self) -> list[Change]:
        """What the log says of groups."""
        changes = [GroupShard.decode(key, value) for key, value, _ in self.log if key is not None]
        return [change for change in changes if change is not None]

    # The clients

    def deliver(self, ticket: Ticket, answer: Any) -> None:
        self.open.remove(ticket)  # a request is answered once
        client = ticket.client
        client.waiting = False
        if isinstance(answer, JoinResult):
            self.joined(client, ticket, answer)
        else:
            self.synced(client, ticket, answer)

    def joined(self, client: Client, ticket: Ticket, answer: JoinResult) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error is ErrorCode.NONE:
            if answer.generation != client.generation:
                # A member that learns again of a generation that has its assignments is not expected to sync.
                client.unsynced_since = self.now if ticket.group.state is State.COMPLETING else None
            client.member_id, client.generation = answer.member_id, answer.generation
            client.leader = bool(answer.members) and not answer.skip_assignment
            client.roster = tuple(member_id for member_id, _, _ in answer.members)
            fact = (self.seat(answer.leader), answer.protocol)
            known = self.facts.setdefault((ticket.group, answer.generation), fact)
            assert known == fact, "all members of a generation hear of one leader and one protocol"
        elif answer.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.forget()

    def synced(self, client: Client, ticket: Ticket, answer: SyncResult) -> None:
        if answer.error is ErrorCode.NONE:
            client.unsynced_since = None
            group_id, generation, owner = answer.assignment.decode().split(" ")
            assert (group_id, generation) == (client.group_id, str(ticket.generation))
            assert self.seat(owner) == self.seat(client.member_id), "everyone gets its own assignment"
        elif answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.forget()

    def seat(self, member_id: str) -> str:
        """A static member is its instance, under whatever id."""
        prefix = member_id.partition("/")[0]
        return prefix if prefix in STATIC.values() else member_id

    # What happens

    @rule(
        who=st.sampled_from(CLIENTS),
        group_id=st.sampled_from(GROUPS),
        protocols=st.sampled_from(PROTOCOLS),
        needs_known_id=st.booleans(),
        rebalance_ms=st.sampled_from([SESSION_MS, REBALANCE_MS]),
    )
    def join(self, who: str, group_id: str, protocols: Any, needs_known_id: bool, rebalance_ms: int) -> None:
        client = self.clients[group_id, who]
        if client.waiting:
            return
        if group_id not in self.shard.groups and client.member_id:
            client.forget()
            return
        request = Join(
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id=client.name,
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type="consumer",
            protocols=protocols,
            needs_known_id=needs_known_id,
            can_skip_assignment=needs_known_id,
        )
        if not self.carry_out(self.shard.create(group_id, request, self.now)):
            return
        ticket = self.ticket(client, self.shard.groups[group_id])
        self.carry_out(self.shard.join(group_id, request, ticket, self.now), ticket)

    @rule(who=st.sampled_from(CLIENTS), group_id=st.sampled_from(GROUPS))
    def restart_of_a_client(self, who: str, group_id: str) -> None:
        """It forgets its id; its old self may still wait."""
        self.clients[group_id, who] = Client(name=who, group_id=group_id)

    @rule(who=st.sampled_from(sorted(STATIC)), group_id=st.sampled_from(GROUPS), protocols=st.sampled_from(PROTOCOLS))
    def a_seat_changes_hands(self, who: str, group_id: str, protocols: Any) -> None:
        """A static client comes back under no id, takes its seat and its assignment; its old self is fenced."""
        old = self.clients[group_id, who]
        self.restart_of_a_client(who, group_id)
        self.join(who, group_id, protocols, True, REBALANCE_MS)
        group = self.shard.groups.get(group_id)
        if group is None:
            return  # there was no room for it
        owner = group.roster.owner(STATIC[who])
        if old.member_id and owner not in {None, old.member_id}:
            assert group.heartbeat(old.member_id, STATIC[who], 0, self.now) is ErrorCode.FENCED_INSTANCE_ID
        self.flush()
        self.sync(who, group_id)

    @rule(who=st.sampled_from(CLIENTS), group_id=st.sampled_from(GROUPS))
    def sync(self, who: str, group_id: str) -> None:
        client, group = self.clients[group_id, who], self.shard.groups.get(group_id)
        if client.waiting or group is None or not client.member_id:
            return
        given = ()
        if client.leader:
            given = tuple((member, f"{group_id} {client.generation} {member}".encode()) for member in client.roster)
        request = Sync(
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
            assignments=given,
        )
        ticket = self.ticket(client, group, client.generation)
        self.carry_out(self.shard.sync(group_id, request, ticket, self.now), ticket)

    @rule(
        group_id=st.sampled_from(GROUPS),
        names=st.lists(st.sampled_from(CLIENTS), min_size=1, unique=True),
        silent=st.sampled_from([None, *CLIENTS]),
    )
    def rebalance(self, group_id: str, names: list[str], silent: str | None) -> None:
        """Members join, and all but one sync: the way to the states where the rest is worth doing."""
        for _ in range(2):
            for name in names:
                self.join(name, group_id, (RANGE, STICKY), True, REBALANCE_MS)
            self.flush()
        self.wait(3_000)
        for name in names:
            if name != silent:
                self.sync(name, group_id)

    @rule(who=st.sampled_from(CLIENTS), group_id=st.sampled_from(GROUPS))
    def heartbeat(self, who: str, group_id: str) -> None:
        client, group = self.clients[group_id, who], self.shard.groups.get(group_id)
        if group is not None:
            identity = (client.member_id, client.instance_id, client.generation)
            code = self.shard.heartbeat(group_id, *identity, self.now).reply
            expected = {State.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS}.get(group.state, ErrorCode.NONE)
            member = group.members.get(client.member_id)
            if member is not None and client.generation == group.generation:
                assert code is expected

    @rule(who=st.sampled_from(CLIENTS), group_id=st.sampled_from(GROUPS), by_seat=st.booleans())
    def leave(self, who: str, group_id: str, by_seat: bool) -> None:
        client, group = self.clients[group_id, who], self.shard.groups.get(group_id)
        if group is not None:
            member_id = "" if by_seat else client.member_id
            decision = self.shard.leave(group_id, [(member_id, client.instance_id)], self.now)
            self.carry_out(decision)
            (code,) = decision.reply
            if code is ErrorCode.NONE and member_id:
                assert member_id not in group.members

    @rule(
        who=st.sampled_from(CLIENTS),
        group_id=st.sampled_from(GROUPS),
        topic=st.sampled_from("tu"),
        offset=st.integers(0, 2**40),
        as_nobody=st.booleans(),
    )
    def commit(self, who: str, group_id: str, topic: str, offset: int, as_nobody: bool) -> None:
        client, group = self.clients[group_id, who], self.shard.groups.get(group_id)
        committer = client.committer(as_nobody=as_nobody)
        value = NewOffset(offset=offset, leader_epoch=3, metadata=who, topic_id=UUID(int=ord(topic)), retention_ms=-1)
        try:
            decision = self.shard.commit(group_id, committer, {(topic, 0): value}, now=self.now, wall_ms=self.now)
        except KafkaError:
            return
        if group is not None and not as_nobody and client.generation >= 0:
            assert client.generation == group.generation
            assert client.member_id in group.members
        self.carry_out(decision)

    @rule(
        who=st.sampled_from(CLIENTS),
        group_id=st.sampled_from(GROUPS),
        producer_id=st.sampled_from(PRODUCERS),
        topic=st.sampled_from("tu"),
        offset=st.integers(0, 2**40),
        as_nobody=st.booleans(),
    )
    def commit_in_transaction(
        self, who: str, group_id: str, producer_id: int, topic: str, offset: int, as_nobody: bool
    ) -> None:
        client, group = self.clients[group_id, who], self.shard.groups.get(group_id)
        committer = client.committer(as_nobody=as_nobody, transactional=True)
        value = NewOffset(offset=offset, leader_epoch=3, metadata=who, topic_id=UUID(int=ord(topic)), retention_ms=-1)
        before = dict(self.shard.offsets.get(group_id, {}))
        try:
            decision = self.shard.commit(group_id, committer, {(topic, 0): value}, now=self.now, wall_ms=self.now)
        except KafkaError:
            return
        if group is not None and not as_nobody and client.generation >= 0:
            assert client.generation == group.generation
            assert client.member_id in group.members
        if self.carry_out(decision, producer_id=producer_id):
            assert self.shard.pending.holds(group_id, (topic, 0))
        assert self.shard.offsets.get(group_id, {}) == before, "it is not in force before the transaction is over"

    @rule(producer_id=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Its marker is written, perhaps once more, or there was nothing to end."""
        if self.full:
            self.full -= 1
            return
        self.log.append((None, b"" if committed else None, producer_id))
        self.shard.end_transaction(producer_id, self.now, committed=committed)
        self.replay(self.twin, self.log[-1])

    @rule(
        group_id=st.sampled_from(GROUPS),
        writers=st.lists(st.sampled_from([-1, *PRODUCERS]), min_size=2, max_size=4),
        ended=st.lists(st.tuples(st.sampled_from(PRODUCERS), st.booleans()), max_size=3),
    )
    def writers_cross(self, group_id: str, writers: list[int], ended: list[tuple[int, bool]]) -> None:
        """Several commit for one partition, within transactions and without, which end in another order."""
        for at, producer_id in enumerate(writers):
            if producer_id < 0:
                self.commit("a", group_id, "t", at, True)
            else:
                self.commit_in_transaction("a", group_id, producer_id, "t", at, True)
        for producer_id, committed in ended:
            self.end_transaction(producer_id, committed)

    @rule(group_id=st.sampled_from(GROUPS), topic=st.sampled_from("tu"))
    def delete_offsets(self, group_id: str, topic: str) -> None:
        try:
            decision = self.shard.delete_offsets(group_id, [(topic, 0)])
        except KafkaError:
            return
        if self.carry_out(decision) and decision.reply[topic, 0] is ErrorCode.NONE:
            assert (topic, 0) not in self.shard.offsets.get(group_id, {})
            assert not self.shard.pending.holds(group_id, (topic, 0))

    @rule(group_id=st.sampled_from(GROUPS))
    def delete(self, group_id: str) -> None:
        decision = self.shard.delete_group(group_id)
        assert bool(decision.records) is (decision.reply is ErrorCode.NONE)
        if self.carry_out(decision) and decision.records:
            assert group_id not in self.shard.groups
            assert group_id not in self.shard.offsets
            assert not self.shard.pending.holds(group_id)

    @rule(gone=st.sampled_from(["", "t", "tu"]))
    def expire(self, gone: str) -> None:
        """Whatever is over by its time, or for its topic; what is pending is not touched."""
        pending = {group_id: set(self.shard.pending.of(group_id)) for group_id in GROUPS}
        for part in self.shard.expirable():
            self.carry_out(self.shard.expire(part, self.now, RETENTION_MS, lambda topic, topic_id: topic not in gone))
        assert pending == {group_id: set(self.shard.pending.of(group_id)) for group_id in GROUPS}
        assert all(group_id in self.shard.groups for group_id in GROUPS if pending[group_id])

    @rule(appends=st.integers(1, 3))
    def full_disk(self, appends: int) -> None:
        """The next appends find no room; nothing of what they were for has happened."""
        self.full = appends

    @rule(ms=st.sampled_from([1, 500, 1_000, 2_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS, 2 * RETENTION_MS]))
    def wait(self, ms: int) -> None:
        """Every deadline on its time, as the driver's timers fire."""
        end = self.now + ms
        while True:
            moment = self.shard.next_deadline()
            if moment is None or moment > end:
                break
            self.now = max(self.now, moment)
            self.carry_out(self.shard.tick(self.now))
            after = self.shard.next_deadline()
            assert after is None or after > self.now, "a timer that has fired is over"
        self.now = end
        self.flush()

    @rule(ms=st.sampled_from([SESSION_MS, REBALANCE_MS, REBALANCE_MS + 2_000]))
    def wait_with_beats(self, ms: int) -> None:
        """Time passes and no member is silent: only what a group itself waits for can end."""
        for _ in range(ms // 2_000):
            for (group_id, _), client in self.clients.items():
                group = self.shard.groups.get(group_id)
                if group is not None and client.member_id in group.members:
                    identity = (client.member_id, client.instance_id, group.generation)
                    self.shard.heartbeat(group_id, *identity, self.now)
            self.wait(2_000)

    @rule()
    def disk(self) -> None:
        self.flush()

    @rule()
    @precondition(lambda self: self.log)
    def crash(self) -> None:
        """What was not on disk is lost; the rest comes back exactly."""
        del self.log[self.durable :]
        self.held, self.open = [], []
        for client in self.clients.values():
            client.waiting, client.unsynced_since = False, None
        self.shard, self.twin, self.full = self.loaded(), self.fresh(), 0
        for entry in self.log:
            self.replay(self.twin, entry)
        last = {key.group: value for key, value in self.stored() if isinstance(key, GroupMetadataKey)}
        for group_id, value in last.items():
            if value is not None:
                assert self.shard.groups[group_id].record() == value
            else:
                kept = group_id in self.shard.offsets or self.shard.pending.holds(group_id)
                assert (group_id in self.shard.groups) == kept

    # What holds at any time

    @invariant()
    def the_offsets_are_those_of_the_log(self) -> None:
        """Live and after replay alike: of each partition the last one in the log that was committed without a transaction, or within
        one that was committed."""
        judge = Judge()
        for at, (key, value, producer_id) in enumerate(self.log):
            if key is None:
                judge.end(producer_id, committed=value is not None)
                continue
            change = GroupShard.decode(key, value)
            assert change is not None
            if isinstance(change[0], OffsetCommitKey):
                assert value is None or isinstance(change[1], OffsetCommitValue)
                judge.write(at, (change[0].group, change[0].topic, change[0].partition), change[1], producer_id)
        expected: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        for (group, topic, partition), (_, stored) in judge.in_force.items():
            expected.setdefault(group, {})[topic, partition] = CommittedOffset.from_record(stored)
        assert self.shard.offsets == expected
        for group_id in GROUPS:
            undecided = {key[1:] for keys in judge.pending.values() for key in keys if key[0] == group_id}
            assert set(self.shard.pending.of(group_id)) == undecided

    @invariant()
    def a_group_is_what_its_log_says(self) -> None:
        """Live and after replay alike, whatever could not be written; but for members that gather for a generation to come."""
        for group_id, group in self.shard.groups.items():
            if group.state in {State.STABLE, State.EMPTY}:
                twin = self.twin.groups[group_id]
                assert (twin.state, twin.subscribed, twin.record()) == (group.state, group.subscribed, group.record())
        assert self.twin.offsets == self.shard.offsets

    @invariant()
    def what_is_pending_is_counted(self) -> None:
        """The bytes of it, neither more nor less."""
        held = sum(
            pending_bytes(place, pending.offset.metadata)
            for table in self.shard.pending._groups.values()
            for place, _, pending, _ in table.all()
        )
        assert self.shard.pending.held_bytes == held

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """A request is answered before the longest rebalance timeout has passed since it came."""
        for ticket in self.open:
            assert self.now - ticket.since <= REBALANCE_MS, ticket

    @invariant()
    def who_does_not_sync_is_out(self) -> None:
        """The rebalance timeout after the generation began; a crash forgets who has synced, as it does in Kafka."""
        for (group_id, _), client in self.clients.items():
            group = self.shard.groups.get(group_id)
            if group is not None and client.unsynced_since is not None and client.member_id in group.members:
                late = self.now - client.unsynced_since > REBALANCE_MS
                assert not late or client.generation != group.generation or group.state is State.PREPARING, client

    @invariant()
    def who_is_in_has_shown_itself(self) -> None:
        """Sessions that are over, and ids that lapsed, are gone once the timers have fired."""
        for group in self.shard.groups.values():
            for member in group.members.values():
                assert member.parked or member.deadline_ms <= self.now + SESSION_MS
            assert all(deadline <= self.now + SESSION_MS for deadline in group.roster.pending.values())
            if group.state in {State.EMPTY, State.DEAD}:
                assert not group.members
            else:
                assert group.members or group.state is State.PREPARING

    @invariant()
    def a_stable_generation_gives_each_member_its_own(self) -> None:
        """The assignment of each member was made for it, in this generation; no other member has one."""
        for group in self.shard.groups.values():
            if group.state is State.STABLE:
                assert group.roster.leader in group.members
                for member in group.members.values():
                    group_id, generation, owner = member.assignment.decode().split(" ")
                    assert (group_id, int(generation)) == (group.group_id, group.generation)
                    assert self.seat(owner) == self.seat(member.member_id)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=80, stateful_step_count=50)
TestGroups = pytest.mark.slow(TestGroups)
