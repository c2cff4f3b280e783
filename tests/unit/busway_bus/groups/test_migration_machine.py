"""Groups of members of both protocols under any order of joins, heartbeats, silence, crashes and failed writes.

What is checked: no partition is had by two members; what the log says, read again in any place, is what is in force, and takes the same
memory; at rest everything is read, by a group of the kind that its members ask for.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.busway_bus.groups.migration_driver import Driver, T
from tests.unit.busway_bus.groups.modern.test_consumer_machine import state_of

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.states import State
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.mixed import MixedGroup
from busway_bus.groups.requests import JoinResult
from busway_bus.kernel.decision import Decision
from busway_protocol.assignors.consumer_protocol import decode_assignment, encode_assignment
from busway_protocol.errors import ErrorCode, KafkaError

NAMES = ("a", "b", "c", "seat-1", "seat-2")
EVERYTHING = frozenset(range(4))


@dataclass(slots=True)
class Client:
    """What one client believes."""

    name: str
    member_id: str = ""
    classic: bool = False
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    joined: JoinResult | None = None
    waits: bool = field(default=False)

    @property
    def instance_id(self) -> str | None:
        return "seat" if self.name.startswith("seat") else None


class FullDisk(Exception):
    """Nothing was written."""


class Disk(Driver):
    """The driver, whose next writes may fail."""

    full = 0

    def carry_out(self, decision: Decision[Any], waiter: str = "") -> Any:
        if decision.records and self.full:
            self.full -= 1
            for parked, _ in decision.responses:
                self.answers[parked] = JoinResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise FullDisk
        return super().carry_out(decision, waiter)


class MixedGroups(RuleBasedStateMachine):
    """One shard with the clients of one group."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Disk()
        self.clients = {name: Client(name) for name in NAMES}

    def forget(self, client: Client) -> None:
        self.clients[client.name] = Client(client.name)

    # Clients of the consumer protocol

    @rule(name=st.sampled_from(NAMES))
    def comes(self, name: str) -> None:
        """With the consumer protocol."""
        self.forget(self.clients[name])
        client = self.clients[name]
        client.member_id = self.driver.new_id(name)
        self.consumer_heartbeat(client)

    def consumer_heartbeat(self, client: Client) -> None:
        said = {T: tuple(sorted(client.owned))} if client.owned else {}
        try:
            beaten = self.driver.consumer_heartbeat(
                client.member_id, client.epoch, instance_id=client.instance_id, owned=said
            )
        except FullDisk:
            return
        except KafkaError:
            self.forget(client)
            return
        client.epoch = beaten.epoch
        if beaten.assigned is not None:
            client.owned = frozenset(beaten.assigned.get(T, ()))

    # Clients of the classic protocol

    @rule(name=st.sampled_from(NAMES))
    def comes_classic(self, name: str) -> None:
        self.forget(self.clients[name])
        client = self.clients[name]
        client.classic = True
        self.join(client)

    def join(self, client: Client) -> None:
        owned = tuple(sorted(client.owned))
        try:
            answer = self.driver.join(client.name, client.member_id, owned, instance_id=client.instance_id)
        except FullDisk:
            return
        client.waits = answer is None
        if answer is not None:
            self.take(client, answer)

    def take(self, client: Client, answer: Any) -> None:
        client.waits = False
        if not isinstance(answer, JoinResult):
            return
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.member_id = answer.member_id
        elif answer.error is ErrorCode.NONE:
            client.joined, client.member_id = answer, answer.member_id
            self.sync(client)
        elif answer.error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.forget(client)

    def sync(self, client: Client) -> None:
        joined = client.joined
        assert joined is not None
        given = {}
        if joined.leader == joined.member_id:
            ids = [member_id for member_id, _, _ in joined.members]
            parts = {
                member_id: [("t", number) for number in EVERYTHING if number % len(ids) == at]
                for at, member_id in enumerate(ids)
            }
            given = {member_id.replace("-", "_"): encode_assignment(part) for member_id, part in parts.items()}
        waiter = f"{client.name} syncs"
        self.driver.answers.pop(waiter, None)
        try:
            self.driver.sync(waiter, joined, instance_id=client.instance_id, **given)
        except FullDisk:
            return
        self.look(client)

    def look(self, client: Client) -> None:
        """Take what has come by now."""
        synced = self.driver.answers.pop(f"{client.name} syncs", None)
        if synced is not None and synced.error is ErrorCode.NONE:
            client.owned = frozenset(number for _, number in decode_assignment(synced.assignment))
        answer = self.driver.answers.pop(client.name, None) if client.waits else None
        if answer is not None:
            self.take(client, answer)

    def classic_heartbeat(self, client: Client) -> None:
        if client.joined is None:
            if not client.waits:
                self.join(client)
            return
        joined = client.joined
        code = self.driver.shard.heartbeat(
            "g", client.member_id, client.instance_id, joined.generation, self.driver.now
        ).reply
        if code is ErrorCode.REBALANCE_IN_PROGRESS and not client.waits:
            self.join(client)
        elif code is ErrorCode.ILLEGAL_GENERATION:
            client.owned = frozenset()
            self.join(client)
        elif code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.forget(client)

    # Both

    @rule(name=st.sampled_from(NAMES))
    def goes_on(self, name: str) -> None:
        client = self.clients[name]
        if client.classic:
            self.look(client)
            client = self.clients[name]
        if client.classic:
            self.classic_heartbeat(client)
        elif client.member_id:
            self.consumer_heartbeat(client)

    @rule(name=st.sampled_from(NAMES))
    def leaves(self, name: str) -> None:
        client = self.clients[name]
        self.forget(client)
        try:
            if client.classic and client.member_id:
                identity = [(client.member_id, client.instance_id)]
                self.driver.carry_out(self.driver.shard.leave("g", identity, self.driver.now))
            elif client.member_id:
                self.driver.consumer_heartbeat(client.member_id, -1, instance_id=client.instance_id)
        except (KafkaError, FullDisk):
            return

    @rule(name=st.sampled_from(NAMES))
    def dies(self, name: str) -> None:
        self.forget(self.clients[name])

    @rule(ms=st.sampled_from([1, 600, 3_000, 6_500, 11_000]))
    def time_passes(self, ms: int) -> None:
        end = self.driver.now + ms
        while self.driver.now < end:
            try:
                self.driver.time_passes(end - self.driver.now)
            except FullDisk:
                continue

    @rule()
    def crash(self) -> None:
        self.driver.crash()
        for client in self.clients.values():
            client.waits = False

    @rule(count=st.integers(1, 2))
    def disk_is_full(self, count: int) -> None:
        self.driver.full = count

    @rule()
    def rest(self) -> None:
        """All members follow their responses until nothing changes."""
        self.driver.full = 0
        for _ in range(60):
            for name in NAMES:
                self.goes_on(name)
            self.time_passes(600)
        group = self.driver.shard.groups.get("g")
        members = [client for client in self.clients.values() if client.member_id]
        if group is None or group.empty:
            assert not members
            return
        assert group.state_name == "Stable"
        assert isinstance(group, ClassicGroup) is all(client.classic for client in members)
        owned = sorted(number for client in members for number in client.owned)
        assert owned == sorted(EVERYTHING)

    # What holds always

    @invariant()
    def the_log_says_what_is_in_force(self) -> None:
        group, memory = self.driver.shard.groups.get("g"), GroupMemory()
        loaded = self.driver.loaded(memory).groups.get("g")
        if group is None:
            assert loaded is None
        elif isinstance(group, MixedGroup):
            assert isinstance(loaded, MixedGroup)
            assert state_of(loaded) == state_of(group)
            assert (loaded.classic_members, +loaded.by_protocol) == (group.classic_members, +group.by_protocol)
            assert memory.used == self.driver.memory.used
            assert memory.share._used_by == self.driver.memory.share._used_by
            held = [place for member in group for place in (*member.assigned.get(T, ()), *member.revoking.get(T, ()))]
            assert len(held) == len(set(held))
        else:
            assert isinstance(group, ClassicGroup)
            assert isinstance(loaded, ClassicGroup)
            if group.state in {State.STABLE, State.EMPTY}:
                assert (loaded.generation, list(loaded.members)) == (group.generation, list(group.members))


TestMixedGroups = MixedGroups.TestCase
TestMixedGroups.settings = settings(max_examples=60, stateful_step_count=40)
